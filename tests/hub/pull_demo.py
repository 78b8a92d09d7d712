"""Pulls the model described by argument 2 (JSON) into the cache named by argument 1, through the real source.

Argument 3 is JSON: ``own`` settings, and ``stop_at``: a label at whose first report (or at whose last, with ``end``) it says
``stopped`` and waits for its standard input; ``file_limit`` caps the size of any file it writes; ``no_pip`` hides pip.
"""

from __future__ import annotations

import json
import logging
import resource
import sys
from pathlib import Path

from lattice_core.descriptors import Settings
from lattice_core.errors import LatticeError
from lattice_hub.pypi import PypiSource
from lattice_hub.shipped_models import ShippedModel


def main() -> int:
    cache, model, how = Path(sys.argv[1]), ShippedModel(**json.loads(sys.argv[2])), json.loads(sys.argv[3])
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    if "file_limit" in how:
        resource.setrlimit(resource.RLIMIT_FSIZE, (how["file_limit"], how["file_limit"]))
    if how.get("no_pip"):
        sys.modules["pip"] = None
    reported = []

    def report(what: str, done: int, total: int | None) -> None:
        reported.append(what)
        if how.get("stop_at") and what.startswith(how["stop_at"]) and (done == total or not how.get("end")):
            print("stopped", flush=True)
            sys.stdin.read()

    try:
        path = PypiSource(Settings(own=how.get("own", {})), (model,)).pull(model.alias, cache, (), report)
    except LatticeError as error:
        print(error.message, file=sys.stderr)
        return int(error.exit_code)
    print(json.dumps({"path": str(path), "reported": sorted({what.split()[0] for what in reported})}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
