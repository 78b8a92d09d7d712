"""The command ``lattice pull``: finds the source that knows the reference, shows progress, prints where the model is."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from attrs import evolve

from lattice_core.errors import ExitCode, PluginError, UsageError
from lattice_core.model_names import model_cache
from lattice_core.registry import unavailable
from lattice_hub.progress import progress_on

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Mapping

    from lattice_core.descriptors import Settings, SourceSpec

_INTERRUPTED = 130


def arguments(parser: ArgumentParser) -> None:
    """Add the arguments of ``lattice pull``."""
    parser.add_argument("reference", metavar="REF", nargs="?", help="a short name, or hf:ORG/NAME[@REVISION]; none lists them")
    parser.add_argument(
        "--include",
        metavar="PATTERN",
        action="append",
        default=[],
        help="take only files that match, such as '*Q4_K_M.gguf'; repeatable",
    )
    parser.add_argument("--verify", action="store_true", help="check the hashes of a model that is here, fetch what is damaged")
    parser.add_argument("--force", action="store_true", help="fetch everything again")


def pull(args: Namespace, context: Any) -> int:
    """Bring a model into Lattice's cache and print its path on standard output. Returns the exit status.

    A source gets the flags as ``force`` and ``verify`` in ``settings.own``.
    """
    sources: Mapping[str, SourceSpec] = context.sources()
    if args.reference is None:
        raise UsageError(f"nothing to pull: {_choices(sources)}")
    spec = _source_of(args.reference, sources)
    if reason := unavailable(spec):
        raise PluginError(f"source {spec.name!r} is {reason}")
    settings: Settings = context.settings_for(spec)
    source = spec.resolve()(evolve(settings, own={**settings.own, "force": args.force, "verify": args.verify}))
    cache = model_cache(getattr(context, "environ", os.environ))
    try:
        with progress_on(sys.stderr) as progress:
            path = source.pull(args.reference, cache, tuple(args.include), progress.report)
    except KeyboardInterrupt:
        sys.stderr.write(f"[lattice] stopped; `lattice pull {args.reference}` starts again with what could be kept\n")
        return _INTERRUPTED
    state = "is ready" if progress.used else "is already there"
    sys.stderr.write(f"[lattice] {args.reference} {state}\n")
    sys.stdout.write(f"{path}\n")
    return int(ExitCode.OK)


def _source_of(reference: str, sources: Mapping[str, SourceSpec]) -> SourceSpec:
    scheme, separator, _ = reference.partition(":")
    found = {
        name: spec for name, spec in sources.items() if reference in spec.aliases or (separator and scheme in spec.schemes)
    }
    if len(found) > 1:
        raise UsageError(f"{reference!r} is known to several sources: {', '.join(found)}; turn one off with -p no:NAME")
    if not found:
        hint = f"did you mean hf:{reference}? " if not separator and reference.count("/") == 1 else ""
        raise UsageError(f"nothing is known of {reference!r}: {hint}{_choices(sources)}")
    return next(iter(found.values()))


def _choices(sources: Mapping[str, SourceSpec]) -> str:
    aliases = [f"{alias} ({words})" for spec in sources.values() for alias, words in spec.aliases.items()]
    schemes = [f"{scheme}:... ({spec.summary})" for spec in sources.values() for scheme in spec.schemes]
    return "there are " + "; ".join([*aliases, *schemes]) if aliases or schemes else "no plugin brings a model source"
