"""Signals of the process: the first SIGINT or SIGTERM asks to stop, the second ends the process at once.

While a model loads there is nothing to finish, so one signal ends the process.
"""

from __future__ import annotations

import os
import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

INTERRUPTED = 130
"""Exit status after a second signal, as shells give it for SIGINT."""

_JOIN_SECONDS = 1.0
_HANDLED = (signal.SIGINT, signal.SIGTERM)


class Stop:
    """Implements ``protocols.StopSignal``. ``set`` may be called from any thread and more than once."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], None]] = []

    def is_set(self) -> bool:
        """Whether the frontend should stop."""
        return self._event.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until set; returns whether it is."""
        return self._event.wait(timeout)

    def set(self) -> None:
        """Ask to stop; runs the callbacks on the calling thread, each once."""
        with self._lock:
            self._event.set()
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def add_callback(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` (from any thread) when set; at once if it already is."""
        with self._lock:
            if not self._event.is_set():
                self._callbacks.append(callback)
                return
        callback()


@contextmanager
def stop_on_signals(stop: Stop) -> Iterator[None]:
    """Within it, SIGINT and SIGTERM set ``stop``; a second one ends the process with status 130."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    reader, writer = os.pipe()
    count = 0

    def handle(_number: int, _frame: FrameType | None) -> None:
        nonlocal count
        count += 1
        if count > 1:
            os._exit(INTERRUPTED)
        # A handler may interrupt code that holds the very lock that `set` needs, so another thread sets it.
        os.write(writer, b"s")

    def relay() -> None:
        if os.read(reader, 1) == b"s":
            stop.set()

    thread = threading.Thread(target=relay, name="lattice-signals", daemon=True)
    thread.start()
    try:
        with _handlers(handle):
            yield
    finally:
        os.write(writer, b"x")
        # A callback may still be at work; then the pipe stays open, for its reader is alive.
        thread.join(_JOIN_SECONDS)
        if not thread.is_alive():
            os.close(reader)
            os.close(writer)


@contextmanager
def end_on_signals(before: Callable[[], None]) -> Iterator[None]:
    """Within it, a signal calls ``before`` (to leave a progress line) and ends the process with 128 + its number."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, _frame: FrameType | None) -> None:
        before()
        os._exit(128 + number)

    with _handlers(handle):
        yield


@contextmanager
def _handlers(handle: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    previous = {number: signal.signal(number, handle) for number in _HANDLED}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
