"""Runs pip in a process that ends when the process that started it does, however that one ends.

Started as a script with a pipe as standard input, whose other end only the parent holds: end of file means it is gone.
"""

from __future__ import annotations

import os
import runpy
import sys
import threading


def _end_with_parent() -> None:
    while os.read(0, 64):
        pass
    os._exit(1)


def main() -> None:
    """Run pip with the arguments of this process."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    sys.argv[0] = "pip"
    runpy.run_module("pip", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
