"""Whether a shared library is a BLAS that MLX can call: the symbols, 32-bit integers, a right product.

Run as a program in a process of its own, so that a library that crashes when it is loaded or called takes only that
process with it: ``python -I -S blas_check.py LIBRARY`` prints ``ANSWER`` and one JSON object, ``{"prefix": ..., "name": ...}``
or ``{"refused": reason}``. Imports the standard library only.
"""

from __future__ import annotations

import ctypes
import json
import sys

SYMBOLS = ("cblas_sgemm", "cblas_dgemm", "cblas_cgemm")
"""What MLX's CPU library calls."""

PREFIXES = ("", "scipy_")
"""Put before the names of ``SYMBOLS`` by the builds of OpenBLAS that are known."""

ANSWER = "blas-check: "
"""Begins the line of the answer, since libraries print lines of their own."""

_ROW_MAJOR, _NO_TRANSPOSE, _TRANSPOSE = 101, 111, 112
_HIGH_BITS = -(1 << 32)


class RefusedError(Exception):
    """This library cannot stand in for MLX's BLAS; the message says why."""


def find_prefix(library: ctypes.CDLL) -> str:
    """Which of ``PREFIXES`` its symbols have; raises ``RefusedError`` with the name of a missing one."""
    for prefix in PREFIXES:
        missing = [name for name in SYMBOLS if not hasattr(library, prefix + name)]
        if not missing:
            return prefix
        if len(missing) < len(SYMBOLS):
            raise RefusedError(f"it lacks {prefix}{missing[0]}")
    raise RefusedError(f"it has no {SYMBOLS[0]}")


def check_product(library: ctypes.CDLL, prefix: str, *, high_bits: int) -> bool:
    """Whether ``sgemm`` computes A B^T for A [2, 3] and B [2, 3], float32.

    ``high_bits`` is added to every size and stride. The upper half of a 64-bit word is not part of a 32-bit integer, so a
    library with 32-bit integers computes the same; one with 64-bit integers sees negative sizes and refuses its arguments.
    """
    sgemm = library[f"{prefix}cblas_sgemm"]
    sgemm.restype = None
    a = (ctypes.c_float * 6)(1, 2, 3, 4, 5, 6)
    b = (ctypes.c_float * 6)(1, 0, -1, 2, 1, 0)
    c = (ctypes.c_float * 4)(9, 9, 9, 9)

    def size(value: int) -> ctypes.c_int64:
        return ctypes.c_int64(value + high_bits)

    order, keep, turn = (ctypes.c_int(flag) for flag in (_ROW_MAJOR, _NO_TRANSPOSE, _TRANSPOSE))
    alpha, beta = ctypes.c_float(1), ctypes.c_float(0)
    sgemm(order, keep, turn, size(2), size(2), size(3), alpha, a, size(3), b, size(3), beta, c, size(2))
    return list(c) == [-2, 4, -2, 13]


def describe(library: ctypes.CDLL, prefix: str) -> str:
    """What the library calls itself, as far as it says: ``OpenBLAS 0.3.34``; else an empty string."""
    config = getattr(library, f"{prefix}openblas_get_config", None)
    if config is not None:
        config.restype = ctypes.c_char_p
        words: list[str] = config().decode("ascii", "replace").split()
        return " ".join(words[:2])
    version = getattr(library, "bli_info_get_version_str", None)
    if version is not None:
        version.restype = ctypes.c_char_p
        return f"BLIS {version().decode('ascii', 'replace')}"
    return "MKL" if hasattr(library, "MKL_Get_Version_String") else ""


def examine(name: str) -> dict[str, str]:
    """Load the library ``name`` (a path, or what the dynamic linker finds) and check it; raises ``RefusedError``."""
    try:
        library = ctypes.CDLL(name, mode=ctypes.RTLD_LOCAL)
    except OSError as error:
        raise RefusedError(str(error)) from error
    prefix = find_prefix(library)
    if not check_product(library, prefix, high_bits=0):
        raise RefusedError(f"its {prefix}cblas_sgemm computes a wrong product")
    if not check_product(library, prefix, high_bits=_HIGH_BITS):
        raise RefusedError("its integers have 64 bits (ILP64), MLX calls it with 32 (LP64)")
    return {"prefix": prefix, "name": describe(library, prefix)}


def main() -> None:
    """Check the library named by the first argument and print the answer."""
    try:
        answer = examine(sys.argv[1])
    except RefusedError as error:
        answer = {"refused": str(error)}
    sys.stdout.write(f"\n{ANSWER}{json.dumps(answer)}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
