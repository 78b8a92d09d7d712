"""Gives memory that the C allocator keeps back to the system. MLX's arrays on a Linux CPU come from it.

glibc holds what was freed for later; after a crowd of requests that can be a hundred megabytes that nothing needs.
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def trim() -> None:
    """Return free pages to the system where the C library can (``malloc_trim``, glibc); elsewhere nothing happens."""
    found = _malloc_trim()
    if found is not None:
        found(0)


@cache
def _malloc_trim() -> Callable[[int], int] | None:
    if not sys.platform.startswith("linux"):
        return None
    function = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if function is None:  # another C library than glibc
        return None
    function.argtypes, function.restype = [ctypes.c_size_t], ctypes.c_int
    trim_function: Callable[[int], int] = function
    return trim_function
