"""Bytes to a file descriptor, written at once and in a wait that can be ended. Knows nothing of what they say."""

from __future__ import annotations

import os
import select
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lattice_stdio.wake import Wake

LAST_SECONDS = 1.0
"""How long a reader that does not read is waited for once the process is asked to stop."""


class OutputClosedError(Exception):
    """Nobody reads the output any more."""


class LineOutput:
    """Writes to ``fd`` without a buffer of its own, so that nothing is left to be flushed when the process ends.

    A negative ``fd`` is an output that was never open.
    """

    def __init__(self, fd: int, wake: Wake) -> None:
        self._fd = fd
        self._wake = wake

    def write(self, data: bytes) -> None:
        """Write all of ``data``; waits while the reader is slow. Raises ``OutputClosedError`` when it has gone."""
        if self._fd < 0:
            raise OutputClosedError("it was never open")
        rest = memoryview(data)
        while rest:
            self._wait()
            try:
                # A pipe that is ready takes this much without blocking.
                written = os.write(self._fd, rest[: select.PIPE_BUF])
            except BlockingIOError:
                continue
            except OSError as error:
                raise OutputClosedError(error.strerror or str(error)) from error
            rest = rest[written:]

    def _wait(self) -> None:
        while True:
            stopping = self._wake.is_set()
            waits = [] if stopping else [self._wake.fd]
            _, writable, _ = select.select(waits, [self._fd], [], LAST_SECONDS if stopping else None)
            if writable:
                return
            if stopping:
                raise OutputClosedError("nobody reads it")
