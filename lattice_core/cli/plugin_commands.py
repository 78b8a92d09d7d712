"""Runs a command that a plugin brings. Its own flags win; beside them stand those that every command has or that it shares.

A command that runs a backend shares options of the core (``CommandSpec.core_options``) and of the parts that these name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from lattice_core.cli.command_line import Flags
from lattice_core.cli.parsers import Parser, add_option
from lattice_core.cli.parts import check_flags_are_used
from lattice_core.descriptors import BackendSpec
from lattice_core.errors import PluginError
from lattice_core.options import CORE
from lattice_core.registry import attributed, call, default_backend

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lattice_core.cli.session import Session
    from lattice_core.descriptors import CommandSpec
    from lattice_core.options import BoundOption
    from lattice_core.registry import Registration

_EVERYWHERE = ("config", "debug")


def run_command(session: Session, part: Registration, arguments: Sequence[str]) -> int:
    """Parse ``arguments`` and call the command's factory. Raises ``UsageError``, ``PluginError`` or what the command says."""
    session.check()
    session.registry.check_available(part)
    spec = cast("CommandSpec", part.spec)
    parser = Parser(f"lattice {session.registry.public_name(part)}", spec.summary)
    call(part, spec.arguments, "arguments", parser)
    taken = set(parser._option_string_actions)  # noqa: SLF001  # argparse has no other way to ask which flags exist
    # A backend that makes up its own model is of no use to a command that names one, but its flags are understood.
    hidden = {session.owner_of(found) for found in _parts(session, part) if _consumes_nothing(found)}
    for title, options in _groups(session, part):
        group = parser.add_argument_group(title)
        for bound in options:
            if not taken.intersection(bound.flags):
                add_option(group, bound, shown=bound.owner not in hidden)
    namespace = parser.parse_args(list(arguments))
    given = {bound.dest: vars(namespace).pop(bound.dest) for bound in session.table if bound.dest in vars(namespace)}
    session.resolve(Flags(given))
    _check_flags_of_parts(session, part, Flags(given))
    with attributed(part, f"command {part.name}"):
        status = spec.resolve()(namespace, session)
    if isinstance(status, bool) or not isinstance(status, int):
        msg = f"{part.label}: the command returned {status!r}, not an exit status"
        raise PluginError(msg)
    return int(status)


def _groups(session: Session, part: Registration) -> Iterator[tuple[str, list[BoundOption]]]:
    """The options that stand beside the command's own, in groups of the help. Raises ``PluginError`` for an unknown one."""
    shared = _shared(part)
    core = {bound.option.name: bound for bound in session.table.of(CORE)}
    if unknown := [name for name in shared if name not in core]:
        msg = f"{part.label}: the command {part.name} shares the option {unknown[0]!r}, which the core does not have"
        raise PluginError(msg)
    yield "options that commands share", [core[name] for name in dict.fromkeys((*shared, *_EVERYWHERE))]
    owners = [session.owner_of(part), *session.sources(), *(session.owner_of(found) for found in _parts(session, part))]
    for owner in dict.fromkeys(owners):
        if options := session.table.of(owner):
            yield f"options of {options[0].label.partition(' (')[0]}", list(options)


def _shared(part: Registration) -> tuple[str, ...]:
    return cast("CommandSpec", part.spec).core_options


def _parts(session: Session, part: Registration) -> list[Registration]:
    """All parts of the kinds that the command's shared options choose among."""
    return [found for kind in _shared(part) for found in session.registry.all(kind)]


def _consumes_nothing(part: Registration) -> bool:
    return isinstance(part.spec, BackendSpec) and part.spec.consumes == "nothing"


def _check_flags_of_parts(session: Session, part: Registration, flags: Flags) -> None:
    """Raise ``UsageError`` for the flag of a part that another one was chosen before, and which would change nothing."""
    if not any(bound.owner != CORE and bound.dest in flags.given for bound in session.table):
        return
    registry, core = session.registry, session.values.core
    used = [*registry.all("source")]
    for kind in _shared(part):
        named = core[kind] if registry.all(kind) else None
        if named is not None:
            used.append(registry.find(kind, str(named)))
        elif kind == "backend":
            used.append(default_backend(registry))
        else:
            used += registry.all(kind)
    check_flags_are_used(session, flags, [part, *(found for found in used if found.spec.options)])
