"""Ctrl-C while an answer is made: the first cancels the answer, the next one goes to whoever handled it before."""

from __future__ import annotations

import queue
import signal
import threading
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType


class Interrupt:
    """As a context manager it takes SIGINT; outside the main thread, where no signal arrives, it does nothing."""

    def __init__(self) -> None:
        self.requested = False
        self._lock = threading.Lock()
        self._cancel: Callable[[], None] | None = None
        # A handler may interrupt code that holds the very lock that cancelling needs, so another thread cancels. Putting
        # into a SimpleQueue is safe in a handler.
        self._queue: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._count = 0
        self._thread: threading.Thread | None = None

    def attach(self, cancel: Callable[[], None]) -> None:
        """Call ``cancel`` at the interrupt, or at once if it has come already."""
        with self._lock:
            self._cancel = cancel
            requested = self.requested
        if requested:
            cancel()

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._thread = threading.Thread(target=self._relay, name="lattice-repl-interrupt", daemon=True)
            self._thread.start()
            self._previous = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *_error: object) -> None:
        if self._thread is not None:
            signal.signal(signal.SIGINT, self._previous)
            self._queue.put("end")
            self._thread.join()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._count += 1
        if self._count == 1:
            self._queue.put("cancel")
        elif callable(self._previous):
            self._previous(number, frame)

    def _relay(self) -> None:
        if self._queue.get() != "cancel":
            return
        with self._lock:
            self.requested = True
            cancel = self._cancel
        if cancel is not None:
            cancel()
