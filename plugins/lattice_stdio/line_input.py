"""Lines from a file descriptor, of bounded length, in a wait that can be ended. Knows nothing of what the lines say."""

from __future__ import annotations

import os
import select
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lattice_stdio.wake import Wake

MAX_LINE = 16 * 1024 * 1024
_BLOCK = 64 * 1024


class LineTooLongError(Exception):
    """A line, or a whole input, of more than ``limit`` bytes."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"it is longer than {limit} bytes")


class LineInput:
    """Reads lines from ``fd`` with nothing buffered elsewhere; holds at most one line and one block.

    A negative ``fd`` is an input that was never open, which has ended.
    """

    def __init__(self, fd: int, wake: Wake, limit: int = MAX_LINE) -> None:
        self._fd = fd
        self._wake = wake
        self._limit = limit
        self._buffer = bytearray()
        self._searched = 0
        self._ended = fd < 0

    def read_line(self) -> bytes | None:
        """The next line without its line break; None once the input has ended, cannot be read, or the wait was ended.

        Raises ``LineTooLongError`` after a line above the limit; the next call gives the line after it.
        """
        skipped = False
        while True:
            end = self._buffer.find(b"\n", self._searched)
            if end >= 0:
                line = self._take(end)
                if skipped or len(line) > self._limit:
                    raise LineTooLongError(self._limit)
                return line
            if len(self._buffer) > self._limit:
                skipped = True
                self._buffer.clear()
            self._searched = len(self._buffer)
            if self._ended or not self._fill():
                break
        if skipped:
            raise LineTooLongError(self._limit)
        if self._buffer and self._ended:
            return self._take(len(self._buffer))
        return None

    def read_all(self) -> bytes | None:
        """Everything up to the end of the input; None when the wait was ended.

        Raises ``LineTooLongError`` above the limit.
        """
        while not self._ended:
            if not self._fill():
                return None
            if len(self._buffer) > self._limit:
                raise LineTooLongError(self._limit)
        return self._take(len(self._buffer))

    def _take(self, end: int) -> bytes:
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        self._searched = 0
        return line

    def _fill(self) -> bool:
        """Read a block; False when the wait was ended. At the end of the input ``_ended`` is set."""
        readable, _, _ = select.select([self._fd, self._wake.fd], [], [])
        if self._wake.fd in readable:
            return False
        try:
            block = os.read(self._fd, _BLOCK)
        except BlockingIOError:  # another process that shares the file has taken what was there
            return True
        except OSError:
            block = b""
        self._ended = not block
        self._buffer += block
        return True
