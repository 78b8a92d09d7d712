"""How many threads OpenBLAS runs and how long they wait, where its own variables do not say.

Knows OpenBLAS by its variables and functions only, not how it was found.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from typing import TYPE_CHECKING

from lattice_mlx.cpu_quota import cpu_quota

if TYPE_CHECKING:
    from collections.abc import Iterator

COUNT_VARIABLES = ("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "OMP_NUM_THREADS")
WAIT_VARIABLE = "OPENBLAS_THREAD_TIMEOUT"
SHORTEST_WAIT = "4"
FEW_PROCESSORS = 4


@contextlib.contextmanager
def short_waits() -> Iterator[None]:
    """Load OpenBLAS inside this: its idle threads then sleep at once where there are few processors.

    A thread without work spins for 2^26 cycles otherwise, on the processor that the rest of MLX or the server needs: with
    two processors and another busy process a step of a small model took 1.1 to 1.5 times as long, and without one the same.
    Waking many threads for each product would cost more than it saves, so on larger machines nothing is changed. The
    variable is read when the library is loaded, and is taken back afterwards.
    """
    if WAIT_VARIABLE in os.environ or len(os.sched_getaffinity(0)) > FEW_PROCESSORS:
        yield
        return
    os.environ[WAIT_VARIABLE] = SHORTEST_WAIT
    try:
        yield
    finally:
        del os.environ[WAIT_VARIABLE]


def limit_threads(library: ctypes.CDLL, prefix: str) -> str:
    """Hold OpenBLAS to the processors that its control group may use; says how it runs, in words for the log.

    ``prefix`` stands before its functions' names. An empty string for a library that is not OpenBLAS, which stays as it is.
    """
    count = getattr(library, f"{prefix}openblas_get_num_threads", None)
    if count is None:
        return ""
    quota = cpu_quota()
    if quota is not None and quota < count() and not any(os.environ.get(name) for name in COUNT_VARIABLES):
        getattr(library, f"{prefix}openblas_set_num_threads")(ctypes.c_int(quota))
    corename = getattr(library, f"{prefix}openblas_get_corename")
    corename.restype = ctypes.c_char_p
    threads = count()
    return f"{corename().decode('ascii', 'replace')} kernels, {threads} thread{'s' if threads != 1 else ''}"
