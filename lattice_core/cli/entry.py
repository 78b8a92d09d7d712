"""The entry point: which command runs, how errors are worded, and how the process ends."""

from __future__ import annotations

import os
import select
import sys
import threading
from typing import TYPE_CHECKING

from attrs import evolve

from lattice_core import __version__
from lattice_core.causes import cause_of
from lattice_core.cli.command_line import parse_flags, scan_early, split_command
from lattice_core.cli.log import is_debugging, set_up_logging
from lattice_core.cli.one_heap import keep_to_one_heap
from lattice_core.cli.parts import PRESETS, frontend_name
from lattice_core.cli.session import Session
from lattice_core.errors import ExitCode, LatticeError, PluginError, UsageError
from lattice_core.nearest import did_you_mean
from lattice_core.options import CORE_OPTIONS, OptionTable, bind
from lattice_core.plugins import PluginHost, Selection
from lattice_core.plugins.reserved import COMMANDS_OF_THE_CORE
from lattice_core.registry import default_backend

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lattice_core.cli.command_line import Flags

_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``lattice`` and return its exit status.

    Without ``argv`` it is the whole process: then nothing that is still stuck in a thread keeps it alive.
    """
    if argv is not None:
        return _guarded(argv)
    _open_closed_streams()
    keep_to_one_heap()
    status = _guarded(sys.argv[1:])
    _leave(status)
    return status


def _guarded(argv: Sequence[str]) -> int:
    try:
        status = run(argv, os.environ)
        sys.stdout.flush()
    except KeyboardInterrupt:
        status = _INTERRUPTED
    except SystemExit as error:
        # argparse, after it printed a command's help.
        status = error.code if isinstance(error.code, int) else int(ExitCode.OK)
    except LatticeError as error:
        _report(error.message, error)
        if error.detail:
            _say(f"  {error.detail}")
        status = int(error.exit_code)
    except Exception as error:  # noqa: BLE001  # the last door: no traceback without --debug
        if isinstance(error, BrokenPipeError) and not _stdout_is_open():
            # Whoever read our output has gone, which is not our failure.
            _forget_stdout()
            return int(ExitCode.OK)
        way_out = "" if is_debugging() else "; run with --debug for the traceback"
        _report(f"internal error: {cause_of(error)}{way_out}", error)
        status = int(ExitCode.FAILURE)
    return status


def run(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Find the command and run it. Raises ``LatticeError``."""
    early = scan_early(argv)
    # As far as it can be known this early; the final word is the option's, once all options are decided.
    set_up_logging(debug=early.debug or environ.get("LATTICE_DEBUG", "").lower() in ("1", "true", "yes", "on"))
    first, _ = split_command(early.rest, _core_table())
    if "--version" in early.rest and (first is None or first in COMMANDS_OF_THE_CORE):
        _print(f"lattice {__version__}")
        return int(ExitCode.OK)
    selection = Selection.of(environ, disabled=early.disabled, third_party=early.third_party)
    if first == "plugins":
        # The command that shows what is broken must work when something is.
        selection = evolve(selection, strict=False)
    session = Session(PluginHost.load(selection), environ, early)
    command, rest = split_command(early.rest, session.table)
    if command == "help":
        command, rest = split_command(rest, session.table)
        rest = [*rest, "--help"]
    if command == "plugins":
        from lattice_core.cli.plugins_command import run_plugins  # noqa: PLC0415  # not needed by any other command

        return run_plugins(session, rest)
    if command is None or command in PRESETS:
        return _run_engine(session, command, rest)
    commands = session.registry.names("command")
    if command not in commands and command not in {part.name for part in session.registry.all("command")}:
        known = [*sorted(COMMANDS_OF_THE_CORE), *commands]
        msg = f"unknown command {command!r}{did_you_mean(command, known)}; commands: {', '.join(known)}"
        raise UsageError(msg + session.registry.absent_note())
    from lattice_core.cli.plugin_commands import run_command  # noqa: PLC0415  # not needed by any other command

    return run_command(session, session.registry.find("command", command), rest)


def _core_table() -> OptionTable:
    """What is known of the command line before plugins load."""
    table = OptionTable()
    table.add(bind(option) for option in CORE_OPTIONS)
    return table


def _run_engine(session: Session, command: str | None, rest: Sequence[str]) -> int:
    flags = parse_flags(rest, session.table, note=session.registry.absent_note())
    if flags.help:
        from lattice_core.cli.help_text import help_text  # noqa: PLC0415  # not needed by any other command

        _print(help_text(session, command, _selected(session, command, flags)), end="")
        return int(ExitCode.OK)
    if command is None and not flags.given and not _is_configured(session):
        from lattice_core.cli.help_text import help_text  # noqa: PLC0415  # as above

        _say(help_text(session, command, ()).rstrip())
        return int(ExitCode.USAGE)
    from lattice_core.cli.compose import run_engine  # noqa: PLC0415  # the engine is imported only where one runs

    return run_engine(session, command, flags)


def _is_configured(session: Session) -> bool:
    """Whether environment or configuration say what to run, so that a bare ``lattice`` means something."""
    sources = session.resolve(parse_flags((), session.table)).core_sources
    return any(sources[name] != "default" for name in ("frontend", "backend", "model", "model-dir", "prompt", "serve", "json"))


def _selected(session: Session, command: str | None, flags: Flags) -> list[str]:
    """The owners whose options the help shows: the parts that the command line names, and the defaults."""
    registry = session.registry
    parts = []
    try:
        values = session.resolve(flags)
        parts.append(registry.find("frontend", frontend_name(command, values)))
        for kind in ("backend", "loader", "sampler", "chat-format"):
            if values.core[kind] is not None:
                parts.append(registry.find(kind, values.core[kind]))
            elif kind == "backend":
                parts.append(default_backend(registry))
    except (UsageError, PluginError):
        # Help is shown even where the rest of the command line is wrong.
        pass
    return list(dict.fromkeys(session.owner_of(part) for part in parts))


# ------------------------------------------------------------------------------------------------ output and leaving


def _print(text: str, end: str = "\n") -> None:
    sys.stdout.write(text + end)


def _say(text: str) -> None:
    try:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        return


def _report(message: str, error: BaseException) -> None:
    if is_debugging():
        import traceback  # noqa: PLC0415  # only with --debug

        _say("".join(traceback.format_exception(error)).rstrip())
    _say(f"lattice: error: {message}")


def _stdout_is_open() -> bool:
    """Whether somebody still reads stdout; a pipe without a reader polls as an error."""
    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
        return not poll.poll(0)
    except (OSError, ValueError, AttributeError):
        return True


def _forget_stdout() -> None:
    """Point stdout at nothing, so that the interpreter's last flush does not complain."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, sys.stdout.fileno())
    os.close(nothing)


def _open_closed_streams() -> None:
    """A process that was started without stdout or stderr writes to nothing."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8"))


def _leave(status: int) -> None:
    """End the process here where another thread is still alive: one stuck in native code would keep or break the exit."""
    if threading.active_count() == 1:
        return
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            continue
    os._exit(status)
