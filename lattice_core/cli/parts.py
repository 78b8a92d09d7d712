"""Decides which parts a run uses, before any of them is made. Knows no model; the loader may follow once there is a path."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from attrs import frozen

from lattice_core.errors import UsageError
from lattice_core.options import CORE
from lattice_core.registry import default_backend

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lattice_core.cli.command_line import Flags
    from lattice_core.cli.session import Session
    from lattice_core.descriptors import BackendSpec
    from lattice_core.options import Values
    from lattice_core.registry import Registration

PRESETS = {"serve": "openai", "chat": "repl", "run": "stdio"}
"""Commands that are short for a frontend."""

_TEXT_FLAGS = ("prompt", "json", "serve")


@frozen
class Parts:
    """The chosen parts. ``loader`` and ``chat_format`` None: found out by probing."""

    frontend: Registration
    backend: Registration
    sampler: Registration
    loader: Registration | None
    chat_format: Registration | None

    @property
    def consumes(self) -> str:
        """What the backend wants: ``tensors``, ``path`` or ``nothing``."""
        return cast("BackendSpec", self.backend.spec).consumes


def frontend_name(command: str | None, values: Values) -> str:
    """The frontend's name. Raises ``UsageError`` where command and flags contradict each other."""
    core, sources = values.core, values.core_sources
    if command is not None:
        preset = PRESETS[command]
        if sources["frontend"] == "flag" and core["frontend"] != preset:
            msg = f"`lattice {command}` is --frontend {preset}; leave out either the command or --frontend {core['frontend']}"
            raise UsageError(msg)
        given = [name for name in _TEXT_FLAGS if sources[name] == "flag" and core[name]]
        if given and command != "run":
            msg = f"--{given[0]} is for `lattice run` (--frontend stdio), not for `lattice {command}`"
            raise UsageError(msg)
        return preset
    if core["frontend"] is not None:
        return str(core["frontend"])
    return "stdio" if core["prompt"] is not None or core["json"] or core["serve"] else "openai"


def choose_parts(session: Session, command: str | None, values: Values) -> Parts:
    """The parts that flags, environment and configuration name, or the defaults.

    Raises ``PluginError`` for one that is unknown, ambiguous or lacks what it requires.
    """
    registry, core = session.registry, values.core
    frontend = registry.require("frontend", frontend_name(command, values))
    named = core["backend"]
    backend = registry.require("backend", named) if named is not None else default_backend(registry)
    loader = registry.require("loader", core["loader"]) if core["loader"] is not None else None
    sampler = registry.require("sampler", core["sampler"])
    chat_format = registry.require("chat-format", core["chat-format"]) if core["chat-format"] is not None else None
    return Parts(frontend, backend, sampler, loader, chat_format)


def check_flags_are_used(session: Session, flags: Flags, used: Iterable[Registration]) -> None:
    """Raise ``UsageError`` for a flag of a part that this run does not use, which would change nothing.

    Variables and configuration files may set options of any part, since they are shared between runs.
    """
    kinds_in_use = ("grammar", "telemetry")
    owners = {session.owner_of(part) for part in used}
    owners |= {session.owner_of(part) for kind in kinds_in_use for part in session.registry.all(kind)}
    for bound in session.table:
        if bound.owner == CORE or bound.owner in owners or bound.dest not in flags.given:
            continue
        flag = flags.given[bound.dest][-1][0]
        chosen = ", ".join(part.label.partition(" (")[0] for part in used)
        msg = f"{flag} is an option of {bound.label}, which is not in use here; in use: {chosen}"
        raise UsageError(msg)
