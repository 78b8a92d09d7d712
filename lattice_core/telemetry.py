"""Hands engine events to observers on a thread of their own, so that none of them can slow or break a generation."""

from __future__ import annotations

import logging
import queue
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lattice_core.protocols import Observer

_LOG = logging.getLogger("lattice.telemetry")
_BOUND = 4096


class Telemetry:
    """A bounded queue in front of observers. Events beyond the bound are dropped and counted.

    ``errors`` counts what observers raised and ``seconds`` what they took, by name; an observer's first error is logged.
    """

    def __init__(self, observers: Mapping[str, Observer]) -> None:
        self._observers = dict(observers)
        self._queue: queue.Queue[tuple[str, Mapping[str, Any]] | None] = queue.Queue(_BOUND)
        self.dropped = 0
        self.errors = dict.fromkeys(self._observers, 0)
        self.seconds = dict.fromkeys(self._observers, 0.0)
        self._thread: threading.Thread | None = None
        if self._observers:
            self._thread = threading.Thread(target=self._run, name="lattice-telemetry", daemon=True)
            self._thread.start()

    def record(self, name: str, **fields: Any) -> None:
        """Queue one event; never blocks and never raises."""
        if self._thread is None:
            return
        try:
            self._queue.put_nowait((name, fields))
        except queue.Full:
            self.dropped += 1

    def close(self, timeout: float = 1.0) -> None:
        """Let the observers finish what is queued, for at most ``timeout`` seconds."""
        if self._thread is None:
            return
        try:
            self._queue.put(None, timeout=timeout)
        except queue.Full:
            return
        self._thread.join(timeout)

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            for name, observer in self._observers.items():
                start = time.monotonic()
                try:
                    observer.observe(*item)
                except (Exception, SystemExit) as error:  # noqa: BLE001  an observer's fault stays its own
                    if self.errors[name] == 0:
                        _LOG.warning("telemetry %s failed, further errors are only counted: %r", name, error)
                    self.errors[name] += 1
                self.seconds[name] += time.monotonic() - start
