"""The frontend ``repl``: the loop of reading a line, running a command or asking the model, until the user leaves.

An answer that is cancelled stays in the conversation as far as it was shown; a turn that failed, or whose answer was
cancelled before anything was shown, is dropped.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Protocol

from lattice_core.errors import EngineDiedError, ExitCode, UsageError
from lattice_repl.adapter_choice import AdapterChoice
from lattice_repl.answer import Answerer, statistics, why_cut
from lattice_repl.commands import NAMES, Commands
from lattice_repl.conversation import Conversation
from lattice_repl.generation_settings import GenerationSettings
from lattice_repl.piped_lines import PipedLines
from lattice_repl.screen import Screen

if TYPE_CHECKING:
    from lattice_core.descriptors import Settings
    from lattice_core.errors import LatticeError
    from lattice_core.protocols import EngineAPI, StopSignal

PROMPT = "> "


class Lines(Protocol):
    """Where lines come from."""

    def read(self, prompt: str) -> str | None:
        """The next line; None when there is none any more. Raises ``KeyboardInterrupt``."""
        ...

    def wake(self) -> None:
        """End the wait for a line, from any thread."""
        ...

    def close(self) -> None:
        """Give back what was taken for it."""
        ...


class ReplFrontend:
    """Implements ``protocols.Frontend`` at a prompt."""

    def __init__(self, settings: Settings) -> None:
        """Check the options. Raises ``UsageError`` for those of the frontend ``stdio``."""
        self._settings = settings
        for name in ("json", "serve"):
            if settings.core[name]:
                raise UsageError(f"--{name} is for --frontend stdio: leave it out here", param=name)

    def serve(self, engine: EngineAPI, stop: StopSignal) -> int:
        """Talk until the user leaves, ``stop`` is set or the engine dies; returns the exit status."""
        screen = Screen(sys.stdout, sys.stderr)
        lines = self._lines(screen)
        try:
            return _Session(engine, stop, lines, screen, self._settings).run()
        finally:
            lines.close()

    def _lines(self, screen: Screen) -> Lines:
        if sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty():
            from lattice_repl.terminal_lines import TerminalLines  # noqa: PLC0415  # prompt-toolkit only where it is used

            return TerminalLines(self._settings.own["history"], NAMES)
        return PipedLines(-1 if sys.stdin is None else sys.stdin.fileno(), screen)


class _Session:
    def __init__(self, engine: EngineAPI, stop: StopSignal, lines: Lines, screen: Screen, settings: Settings) -> None:
        self._engine = engine
        self._stop = stop
        self._lines = lines
        self._screen = screen
        self._conversation = Conversation(settings.own["system"])
        self._choices = GenerationSettings(settings.core)
        self._adapters = AdapterChoice(engine)
        self._commands = Commands(self._conversation, self._choices, screen, self._adapters)
        self._answerer = Answerer(engine, screen, self._adapters)
        self._first: str | None = settings.core["prompt"]
        self._death: LatticeError | None = None

    def run(self) -> ExitCode:
        self._stop.add_callback(self._end)
        self._engine.on_death(self._died)
        info = self._engine.model_info
        with_adapter = f" + {chosen}" if (chosen := self._adapters.current) else ""
        self._screen.note(f"=== {self._engine.model_id}{with_adapter} ({self._engine.model_format}) on {info.device} ===")
        self._screen.note("Type your message; /help lists the commands. An empty line or Ctrl-D leaves.\n")
        while not self._stop.is_set() and self._death is None:
            line = self._next_line()
            if line is None:
                break
            text = line.strip()
            if not text:
                break
            if text.startswith("/") and not text.startswith("//"):
                if not self._commands.run(text):
                    break
            else:
                self._talk(text.removeprefix("/"))
        if self._death is not None:
            self._screen.note(f"the engine died: {self._death.message}")
            return ExitCode.ENGINE_DIED
        return ExitCode.OK

    def _next_line(self) -> str | None:
        """The next line; None to leave: at the end of the input, when woken, or at a second Ctrl-C in a row."""
        if self._first is not None:
            first, self._first = self._first, None
            return first
        try:
            return self._lines.read(PROMPT)
        except KeyboardInterrupt:
            self._screen.note("(Ctrl-C again or Ctrl-D leaves)")
        try:
            return self._lines.read(PROMPT)
        except KeyboardInterrupt:
            return None

    def _talk(self, text: str) -> None:
        ended = self._answerer.ask(self._conversation, text, self._choices)
        if ended.error is not None:
            if isinstance(ended.error, EngineDiedError):
                self._death = ended.error
            else:
                self._screen.note(f"error: {ended.error.message}")
            return
        context = self._engine.model_info.context
        if ended.forgotten:
            self._screen.note(f"[the {ended.forgotten} oldest turns were left out: the context is {context} tokens]")
        if ended.text.strip() or ended.cancelled is None:
            self._conversation.add(text, ended.text, ended.forgotten)
        if ended.cancelled is not None:
            self._screen.note(f"[{ended.cancelled.reason}]")
        if ended.done is not None:
            cut = why_cut(ended.done, context)
            if cut is not None:
                self._screen.note(cut)
            self._screen.note(statistics(ended.done, self._engine.model_info.device, ended.adapter))

    def _end(self) -> None:
        self._lines.wake()
        self._answerer.cancel()

    def _died(self, error: LatticeError) -> None:
        self._death = error
        self._lines.wake()


def create(settings: Settings) -> ReplFrontend:
    """The factory of the frontend ``repl``."""
    return ReplFrontend(settings)
