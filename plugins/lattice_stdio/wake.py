"""A flag that ends a wait on a file: the stop signal and the engine's death reach a blocked read or write through it."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import Self


class Wake:
    """A pair of sockets of which one becomes readable, for good, once ``set`` was called. A context manager closes it."""

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._writer.settimeout(0)
        self._set = False

    @property
    def fd(self) -> int:
        """What a ``select`` waits for beside its own file."""
        return self._reader.fileno()

    def set(self) -> None:
        """End all waits, now and later. May be called from any thread or signal handler, repeatedly, and after ``close``."""
        self._set = True
        with suppress(OSError):  # closed, or so often set that nothing more goes in
            self._writer.send(b"\0")

    def is_set(self) -> bool:
        """Whether ``set`` was called."""
        return self._set

    def close(self) -> None:
        """Give the sockets back."""
        self._reader.close()
        self._writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()
