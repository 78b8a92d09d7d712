"""The generation that runs now, and the one way to end it from outside: what the stop signal and the engine's death do."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lattice_core.protocols import Generation


class Current:
    """Holds at most one generation. ``cancel`` ends it, and every later one too."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a signal handler may cancel while its own thread is inside
        self._generation: Generation | None = None
        self._over = False

    @contextmanager
    def running(self, generation: Generation) -> Iterator[None]:
        """Within it ``generation`` is the current one; on leaving early, by an exception, it is cancelled."""
        with self._lock:
            self._generation = generation
            if self._over:
                generation.cancel()
        try:
            yield
        except BaseException:
            generation.cancel()
            raise
        finally:
            with self._lock:
                self._generation = None

    def cancel(self) -> None:
        """Cancel the current generation and all that follow. May be called from any thread."""
        with self._lock:
            self._over = True
            if self._generation is not None:
                self._generation.cancel()
