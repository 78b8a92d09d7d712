"""``python -m lattice_core`` is ``lattice``."""

import sys

from lattice_core.cli import main

if __name__ == "__main__":
    sys.exit(main())
