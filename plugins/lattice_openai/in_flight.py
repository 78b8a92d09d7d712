"""The generations that are running for HTTP clients, so that a shutdown can end them. Knows nothing of HTTP."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lattice_core.protocols import Generation


class InFlight:
    """A set of running generations. Used on the event loop only, but for ``closing``, which any thread may read."""

    def __init__(self) -> None:
        self._running: set[Generation] = set()
        self.closing = False

    @contextmanager
    def track(self, generation: Generation) -> Iterator[None]:
        """Count ``generation`` as running inside the block; however the block ends, it does not run on unread."""
        self._running.add(generation)
        try:
            if self.closing:
                generation.cancel()
            yield
        finally:
            self._running.discard(generation)
            generation.cancel()

    def cancel_all(self) -> None:
        """Cancel what runs, and whatever is tracked from now on."""
        self.closing = True
        for generation in self._running:
            generation.cancel()
