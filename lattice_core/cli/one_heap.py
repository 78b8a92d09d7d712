"""How the C library of this process keeps freed memory: in one heap, of which all can be given back.

glibc makes heaps for threads, of which ``malloc_trim`` cannot return the free end, up to 64 MB each. Backends make few and
large allocations, and Python has an allocator of its own, so that sharing one heap costs nothing (measured). Knows no backend.
"""

from __future__ import annotations

import ctypes
import sys

_ARENA_MAX = -8
"""``M_ARENA_MAX`` of mallopt(3)."""


def keep_to_one_heap() -> None:
    """Let all threads share one heap; to be called before any starts. Nothing happens where the C library is not glibc."""
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_ARENA_MAX, 1)
