"""``lattice plugins``: the list, one plugin in detail, and the check. Works whatever is broken; imports no part."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from lattice_core.cli.doctor import run_doctor
from lattice_core.cli.parsers import Parser
from lattice_core.errors import ExitCode, PluginError
from lattice_core.nearest import did_you_mean
from lattice_core.plugins import Status, normalized
from lattice_core.registry import unavailable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lattice_core.cli.session import Session
    from lattice_core.options import BoundOption
    from lattice_core.plugins import PluginRecord, Provided


def run_plugins(session: Session, arguments: Sequence[str]) -> int:
    """Run ``lattice plugins [--json]``, ``lattice plugins show NAME`` or ``lattice plugins doctor [NAME]``."""
    parser = Parser("lattice plugins", "List plugins, show one in detail, or check that they can work.")
    parser.add_argument("action", nargs="?", choices=("list", "show", "doctor"), default="list", help="default: list")
    parser.add_argument("name", nargs="?", help="a plugin, a distribution, or a part such as mlx or openai")
    parser.add_argument("--json", action="store_true", help="machine-readable")
    parser.add_argument("--debug", action="store_true", help="tracebacks")
    given = parser.parse_args(list(arguments))
    if given.action == "show" and given.name is None:
        parser.error("show needs the NAME of a plugin")
    if given.action == "list" and given.name is not None:
        parser.error(f"unexpected argument {given.name!r}")
    records = _named(session, given.name) if given.name is not None else session.host.records
    if given.action == "doctor":
        return run_doctor(session, records, as_json=given.json)
    if given.json:
        json.dump([describe(session, record) for record in records], sys.stdout, indent=2)
        sys.stdout.write("\n")
    elif given.action == "show":
        sys.stdout.write("\n\n".join("\n".join(_details(session, record)) for record in records) + "\n")
    else:
        sys.stdout.write("\n".join(_table(session)) + "\n")
    return int(ExitCode.OK)


def describe(session: Session, record: PluginRecord) -> dict[str, Any]:
    """A plugin as JSON."""
    return {
        "name": record.name,
        "distribution": record.distribution,
        "version": record.version,
        "module": record.module,
        "first_party": record.first_party,
        "status": record.status.value,
        "cause": record.cause,
        "provides": [
            {
                "kind": provided.kind,
                "name": provided.spec.name,
                "summary": provided.spec.summary,
                "unavailable": unavailable(provided.spec),
                "options": [_option_as_json(bound) for bound in _options(session, record, provided)],
            }
            for provided in record.provides
        ],
    }


def _option_as_json(bound: BoundOption) -> dict[str, Any]:
    default = bound.option.default
    return {
        "flags": list(bound.flags),
        "variables": list(bound.variables),
        "config": {"table": bound.owner, "key": bound.key},
        "type": bound.option.type,
        "default": default if isinstance(default, str | int | float | bool | None) else str(default),
        "help": bound.option.help,
    }


def _named(session: Session, name: str) -> list[PluginRecord]:
    """The plugins of that name, of that distribution, or that provide a part of that name. Raises ``PluginError``."""
    records = session.host.records
    for matches in (
        [record for record in records if record.name == name],
        [record for record in records if normalized(record.distribution) == normalized(name)],
        [record for record in records if any(name in _names_of(record, provided) for provided in record.provides)],
    ):
        if matches:
            return matches
    known = [record.name for record in records] + [part.spec.name for record in records for part in record.provides]
    msg = f"no plugin is named {name!r}{did_you_mean(name, known)}; installed: {', '.join(r.name for r in records) or 'none'}"
    raise PluginError(msg)


def _names_of(record: PluginRecord, provided: Provided) -> tuple[str, str]:
    return provided.spec.name, f"{record.distribution}/{provided.spec.name}"


def _options(session: Session, record: PluginRecord, provided: Provided) -> tuple[BoundOption, ...]:
    for part in session.registry.everything():
        if part.spec is provided.spec and part.plugin == record.name:
            names = {option.name for option in provided.spec.options}
            return tuple(bound for bound in session.table.of(session.owner_of(part)) if bound.option.name in names)
    return ()


# ------------------------------------------------------------------------------------------------ text


def _table(session: Session) -> list[str]:
    rows = [("PLUGIN", "STATUS", "DISTRIBUTION", "PROVIDES")]
    for record in session.host.records:
        parts = ", ".join(f"{provided.kind} {provided.spec.name}" for provided in record.provides)
        rows.append((record.name, record.status.value, f"{record.distribution} {record.version}", parts or record.cause))
    rows += [(name, "unknown", "-", "named by -p or LATTICE_PLUGINS, but not installed") for name in session.host.unknown]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = ["  ".join([*(cell.ljust(width) for cell, width in zip(row[:3], widths, strict=True)), row[3]]) for row in rows]
    missing = [
        f"{provided.kind} {provided.spec.name} is {unavailable(provided.spec)}"
        for record in session.host.loaded
        for provided in record.provides
        if unavailable(provided.spec)
    ]
    if session.collision is not None:
        missing.append(str(session.collision))
    return [*lines, *(["", *missing] if missing else [])]


def _details(session: Session, record: PluginRecord) -> list[str]:
    lines = [
        f"plugin        {record.name}",
        f"distribution  {record.distribution} {record.version}",
        f"module        {record.module}",
        f"status        {record.status.value}{f': {record.cause}' if record.cause else ''}",
    ]
    for provided in record.provides:
        spec = provided.spec
        lines += ["", f"{provided.kind} {spec.name}", f"  {spec.summary}"]
        if spec.requires:
            lines.append(f"  requires {', '.join(spec.requires)}: {unavailable(spec) or 'available'}")
        for bound in _options(session, record, provided):
            lines += _option_lines(bound)
    if record.status is Status.FAILED and record.error is not None and session.debug:
        import traceback  # noqa: PLC0415  # only with --debug

        lines += ["", *"".join(traceback.format_exception(record.error)).rstrip().splitlines()]
    return lines


def _option_lines(bound: BoundOption) -> list[str]:
    option = bound.option
    limits = [f"one of {', '.join(option.choices)}"] if option.choices else []
    limits += [f"at least {option.minimum}"] if option.minimum is not None else []
    limits += [f"at most {option.maximum}"] if option.maximum is not None else []
    limits += [f"default {option.default}"] if option.default not in (None, ()) else []
    return [
        f"  {', '.join(bound.flags)}  ({'; '.join([option.type, *limits])})",
        f"      {option.help}",
        f"      {', '.join(bound.variables)}; in lattice.toml: [{bound.owner}] {bound.key}",
    ]
