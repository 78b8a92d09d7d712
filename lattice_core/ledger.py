"""One account of memory for the whole process: weights and the states of running requests are reserved before they grow.

Counts what was promised, not what an allocator reports, so that freeing a request always makes room again.
"""

from __future__ import annotations

import os
import threading

_SHARE = 0.9
"""Part of physical memory that Lattice takes when nothing else is said."""


class MemoryLedger:
    """Bytes reserved against a limit. ``limit`` None is unlimited. Safe to use from any thread."""

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self._reserved = 0
        self._lock = threading.Lock()

    @property
    def reserved(self) -> int:
        """Bytes reserved now."""
        return self._reserved

    def fits(self, nbytes: int, *, beside: int = 0) -> bool:
        """Whether ``nbytes`` could ever be reserved when only ``beside`` bytes stay reserved."""
        return self.limit is None or beside + nbytes <= self.limit

    def reserve(self, nbytes: int) -> bool:
        """Reserve now; False, with nothing reserved, when there is no room."""
        with self._lock:
            if self.limit is not None and self._reserved + nbytes > self.limit:
                return False
            self._reserved += nbytes
            return True

    def free(self, nbytes: int) -> None:
        """Give back what was reserved."""
        with self._lock:
            self._reserved -= nbytes


def default_limit() -> int | None:
    """Nine tenths of physical memory; None where the system does not say."""
    try:
        return int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * _SHARE)
    except (OSError, ValueError, AttributeError):
        return None


def size_text(nbytes: int) -> str:
    """``nbytes`` for a message, in the powers of 1024 that ``--memory`` takes: ``100 B``, ``512.0M``, ``8.0G``."""
    for power, unit in ((3, "G"), (2, "M"), (1, "K")):
        if nbytes >= 1024**power:
            return f"{nbytes / 1024**power:.1f}{unit}"
    return f"{nbytes} B"
