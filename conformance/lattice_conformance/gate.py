"""Owns gates: a scripted model waits at one before every decode token, so that a test decides when tokens flow.

Knows nothing of models. A permit lets one row decode one token; the token that prefill makes needs none.
"""

from __future__ import annotations

import os
import stat
from threading import Condition
from typing import TYPE_CHECKING, Protocol

from lattice_core.errors import ModelError

if TYPE_CHECKING:
    from pathlib import Path


class TokenGate(Protocol):
    """What the scripted model waits at."""

    def take(self) -> None:
        """Wait for one permit and use it up."""
        ...


class Gate:
    """A gate inside one process: closed at first, each permit lets one decode token through."""

    def __init__(self) -> None:
        self._condition = Condition()
        self._permits = 0
        self._waiting = 0
        self._open = False

    def permit(self, n: int = 1) -> None:
        """Let ``n`` more decode tokens through."""
        with self._condition:
            self._permits += n
            self._condition.notify_all()

    def open(self) -> None:
        """Let everything through from now on."""
        with self._condition:
            self._open = True
            self._condition.notify_all()

    def take(self) -> None:
        """Wait for one permit and use it up."""
        with self._condition:
            self._waiting += 1
            self._condition.notify_all()
            try:
                self._condition.wait_for(lambda: self._open or self._permits > 0)
            finally:
                self._waiting -= 1
            if not self._open:
                self._permits -= 1
            self._condition.notify_all()

    def wait_blocked(self, timeout: float = 10.0) -> bool:
        """Wait until a forward stands at the gate with no permit left for it; False when ``timeout`` seconds have passed."""
        with self._condition:
            return self._condition.wait_for(lambda: self._waiting > self._permits and not self._open, timeout)

    @property
    def blocked(self) -> bool:
        """Whether a forward stands at the gate now with no permit left for it."""
        with self._condition:
            return self._waiting > self._permits and not self._open


class FifoGate:
    """A gate between processes: every byte read from a FIFO is one permit."""

    def __init__(self, path: Path) -> None:
        try:
            is_fifo = stat.S_ISFIFO(path.stat().st_mode)
        except OSError as error:
            raise ModelError(f"the gate {path} cannot be read ({error.strerror}): make it with mkfifo first") from error
        if not is_fifo:
            raise ModelError(f"the gate {path} is no FIFO: make one with mkfifo")
        # Read and write: opening never waits for a writer, and a writer that goes away is no end of file.
        self._file = os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def take(self) -> None:
        """Wait for one byte and use it up."""
        os.read(self._file, 1)

    def close(self) -> None:
        """Give the FIFO back."""
        os.close(self._file)
