"""The command ``lattice models``: shows the inventory as a table or as JSON."""

from __future__ import annotations

import json
import os
import re
import sys
from typing import TYPE_CHECKING, Any

from attrs import asdict

from lattice_core.errors import ExitCode
from lattice_core.model_names import DEMO_MODEL
from lattice_hub.inventory import list_models
from lattice_hub.sizes import readable

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Sequence

    from lattice_hub.inventory import ModelEntry

_HEADINGS = ("NAME", "ARCHITECTURE", "FORMAT", "SIZE", "WHERE")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def arguments(parser: ArgumentParser) -> None:
    """Add the arguments of ``lattice models``."""
    parser.add_argument("--json", action="store_true", help="print a JSON array with all that is known of each model")


def models(args: Namespace, context: Any) -> int:
    """Print the models of Lattice's, the hub's and LM Studio's caches on standard output. Returns the exit status."""
    entries = list_models(getattr(context, "environ", os.environ))
    if args.json:
        sys.stdout.write(json.dumps([asdict(entry) for entry in entries], indent=2) + "\n")
    elif entries:
        sys.stdout.write(_table(entries))
    else:
        sys.stderr.write(f"no models here; `lattice pull {DEMO_MODEL}` fetches a small one\n")
    return int(ExitCode.OK)


def _table(entries: Sequence[ModelEntry]) -> str:
    rows = [_HEADINGS, *(_row(entry) for entry in entries)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join(lines) + "\n"


def _row(entry: ModelEntry) -> tuple[str, ...]:
    where = f"{entry.where}; broken: {entry.broken}" if entry.broken else entry.where
    cells = (entry.name, entry.architecture, entry.format, readable(entry.size), where)
    # Names and architectures come from files of strangers; a terminal must not obey them.
    return tuple(_CONTROL.sub("?", cell) for cell in cells)
