"""Lines from a file that is no terminal, in a wait that can be ended."""

from __future__ import annotations

import os
import select
import socket
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lattice_repl.screen import Screen

_BLOCK = 64 * 1024


class PipedLines:
    """Reads from ``fd``; a negative one is an input that was never open. What is no UTF-8 is replaced."""

    def __init__(self, fd: int, screen: Screen) -> None:
        self._fd = fd
        self._screen = screen
        self._buffer = b""
        self._ended = fd < 0
        self._waken, self._waker = socket.socketpair()
        self._waker.settimeout(0)

    def read(self, prompt: str) -> str | None:
        """The next line, after ``prompt`` was shown; None at the end of the input or when woken."""
        self._screen.show(prompt)
        while b"\n" not in self._buffer and not self._ended:
            readable, _, _ = select.select([self._fd, self._waken.fileno()], [], [])
            if self._waken.fileno() in readable:
                return None
            try:
                block = os.read(self._fd, _BLOCK)
            except OSError:
                block = b""
            self._ended = not block
            self._buffer += block
        if not self._buffer:
            return None
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode("utf-8", "replace")

    def wake(self) -> None:
        """End the wait, now or the next time. May be called from any thread, and after ``close``."""
        with suppress(OSError):
            self._waker.send(b"\0")

    def close(self) -> None:
        """Give back what the wait needs; the file stays open."""
        self._waken.close()
        self._waker.close()
