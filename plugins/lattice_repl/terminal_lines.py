"""Lines typed at a terminal, with editing, a history and completion of commands (prompt-toolkit)."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import WordCompleter
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from prompt_toolkit.key_binding import KeyPressEvent

log = logging.getLogger("lattice.repl")


class _WokenError(Exception):
    """The prompt was ended from outside."""


class TerminalLines:
    """A prompt at the terminal of the process. ``history`` is a file, or ``off``."""

    def __init__(self, history: str, commands: Sequence[str]) -> None:
        self._woken = False
        self._session: PromptSession[str] = PromptSession(
            history=_history(history),
            completer=WordCompleter(list(commands), sentence=True),
            complete_while_typing=False,
            key_bindings=_keys(),
            enable_open_in_editor=False,
        )

    def read(self, prompt: str) -> str | None:
        """The line typed; None at Ctrl-D or when woken. Raises ``KeyboardInterrupt`` at Ctrl-C, which gives the line up."""
        if self._woken:
            return None
        try:
            # SIGINT from elsewhere is a signal to stop; Ctrl-C arrives as a key while a line is edited.
            return self._session.prompt(prompt, pre_run=self._leave_if_woken, handle_sigint=False)
        except (EOFError, _WokenError):
            return None

    def wake(self) -> None:
        """End the prompt, now or the next time. May be called from any thread."""
        self._woken = True
        loop = self._session.app.loop
        if loop is not None:
            try:
                loop.call_soon_threadsafe(self._leave_if_woken)
            except RuntimeError:  # the prompt has ended meanwhile; the next one sees the flag
                return

    def close(self) -> None:
        """Nothing to give back."""

    def _leave_if_woken(self) -> None:
        app = self._session.app
        if self._woken and app.is_running and not app.is_done:
            app.exit(exception=_WokenError())


def _keys() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("escape", "enter")
    def _line_break(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return keys


def _history(setting: str) -> History:
    """A file that only its owner may read; what cannot be written is kept in memory, with a warning."""
    if setting.lower() == "off":
        return InMemoryHistory()
    path = Path(setting).expanduser()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600))
    except OSError as error:
        log.warning("the history %s is not kept: %s", path, error.strerror)
        return InMemoryHistory()
    return _TolerantFileHistory(path)


class _TolerantFileHistory(FileHistory):
    """A full disk costs the history, not the conversation."""

    def store_string(self, string: str) -> None:
        try:
            super().store_string(string)
        except OSError as error:
            log.warning("the history is not kept: %s", error.strerror)
