"""The command ``lattice inspect``: opens a model or an adapter, asks the backend what it would be, prints the answer.

Loads no weights. What is broken does not hide what is known: that is printed all the same, and the exit status tells.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from lattice_core.causes import cause_of
from lattice_core.errors import AdapterError, ExitCode, LatticeError, ModelError, PluginError
from lattice_core.model_names import expand_home
from lattice_core.protocols import DescribingBackend
from lattice_core.registry import select_adapter_loader, select_loader
from lattice_core.types import Limits
from lattice_inspect.adapter_report import report_adapter
from lattice_inspect.model_report import report_model
from lattice_inspect.text_report import adapter_lines, model_lines

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterable
    from pathlib import Path

    from lattice_core.protocols import Checkpoint
    from lattice_core.types import ModelDescription


def arguments(parser: ArgumentParser) -> None:
    """Add the arguments of ``lattice inspect``."""
    parser.add_argument(
        "model", metavar="NAME|PATH", help="a model, named as for --model, or the directory or file of an adapter"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object with all that is known")
    parser.add_argument("--tensors", action="store_true", help="list every tensor; of an adapter, every module")


def inspect(args: Namespace, context: Any) -> int:
    """Print what a model or an adapter is on standard output.

    Returns 0 for one that can be loaded; else the status of the first error, which is 3 for anything missing or broken.
    Raises ``ModelError`` where nothing can be opened.
    """
    adapter = _adapter_at(context, args.model)
    return _adapter(args, context, adapter) if adapter is not None else _model(args, context)


def _model(args: Namespace, context: Any) -> int:
    path, checkpoint = context.open_model(args.model)
    core = context.values.core
    notes: list[str] = []
    try:
        found = report_model(checkpoint, lambda: _describe(context, checkpoint, notes), core["max-batch"], tensors=args.tensors)
    finally:
        checkpoint.close()
    loadable = False if found.problems else True if found.report["described"] else None
    head = {"what": "model", "path": str(path), "loadable": loadable}
    report = {**head, **found.report, "notes": notes, "problems": found.problems}
    _print(report, model_lines(report), as_json=args.json)
    if found.errors:
        return int(found.errors[0].exit_code)
    return int(ExitCode.MODEL if found.problems else ExitCode.OK)


def _describe(context: Any, checkpoint: Checkpoint, notes: list[str]) -> ModelDescription | None:
    core = context.values.core
    backend = context.make_backend(core["backend"])
    if not isinstance(backend, DescribingBackend):
        notes.append("this backend cannot say what a model would be without loading it")
        return None
    limits = Limits(context=core["context"], max_batch=core["max-batch"], dtype=core["dtype"])
    try:
        return backend.describe(checkpoint, limits)
    except LatticeError:
        raise
    except Exception as error:
        raise PluginError(f"the backend could not describe the model: {cause_of(error)}") from error


def _adapter_at(context: Any, reference: str) -> Path | None:
    """The path of an adapter, where there is one and no model beside it."""
    path = expand_home(reference, context.environ).absolute()
    if not path.exists():
        return None
    try:
        select_loader(context.registry, path)
    except ModelError:
        try:
            select_adapter_loader(context.registry, path)
        except AdapterError:
            return None
        return path
    return None


def _adapter(args: Namespace, context: Any, path: Path) -> int:
    adapter = context.open_adapter(path)
    try:
        report = {"what": "adapter", "path": str(path), **report_adapter(adapter, tensors=args.tensors)}
    finally:
        adapter.close()
    _print(report, adapter_lines(report), as_json=args.json)
    return int(ExitCode.OK)


def _print(report: dict[str, Any], lines: Iterable[str], *, as_json: bool) -> None:
    text = json.dumps(report, indent=2, default=str) if as_json else "\n".join(lines)
    sys.stdout.write(text + "\n")
