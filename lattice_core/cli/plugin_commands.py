"""Runs a command that a plugin brings. Its own flags win; beside them stand the flags that every command has."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from lattice_core.cli.command_line import Flags
from lattice_core.cli.parsers import Parser, add_option
from lattice_core.errors import PluginError
from lattice_core.options import CORE
from lattice_core.registry import attributed, call

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lattice_core.cli.session import Session
    from lattice_core.descriptors import CommandSpec
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
    owners = {session.owner_of(part), *session.sources()}
    for bound in session.table:
        common = bound.owner == CORE and bound.option.name in _EVERYWHERE
        if (common or bound.owner in owners) and not taken.intersection(bound.flags):
            add_option(parser, bound)
    namespace = parser.parse_args(list(arguments))
    given = {bound.dest: vars(namespace).pop(bound.dest) for bound in session.table if bound.dest in vars(namespace)}
    session.resolve(Flags(given))
    with attributed(part, f"command {part.name}"):
        status = spec.resolve()(namespace, session)
    if isinstance(status, bool) or not isinstance(status, int):
        msg = f"{part.label}: the command returned {status!r}, not an exit status"
        raise PluginError(msg)
    return int(status)
