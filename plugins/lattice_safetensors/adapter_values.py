"""The bytes of an adapter's matrices: whether every number is finite, and the transposed matrix.

Both work on the stored bytes, without numpy and without converting a number. Must not know files or modules.
"""

from __future__ import annotations

WIDTH_OF = {"F32": 4, "F16": 2, "BF16": 2}
_CHUNK = 1 << 20
# A number is infinite or NaN where all bits of its exponent are 1 (IEEE 754; BF16 is the upper half of F32). By the last
# byte of the little-endian word: the bits of the exponent in it, and in the byte before it.
_EXPONENT = {"F32": (0x7F, 0x80), "BF16": (0x7F, 0x80), "F16": (0x7C, 0x00)}


def _marks(bits: int) -> bytes:
    """A table for ``bytes.translate``: 1 where all of ``bits`` are set, else 0."""
    return bytes(int(value & bits == bits) for value in range(256))


_TABLES = {dtype: (_marks(high), _marks(low)) for dtype, (high, low) in _EXPONENT.items()}


def first_not_finite(data: memoryview, dtype: str) -> int | None:
    """The index of an element that is infinite or NaN, the first one; None where all are finite. F32, F16 or BF16."""
    width = WIDTH_OF[dtype]
    high, low = _TABLES[dtype]
    for start in range(0, len(data), _CHUNK):
        chunk = bytes(data[start : start + _CHUNK])
        last = chunk[width - 1 :: width].translate(high)
        before = chunk[width - 2 :: width].translate(low)
        # One byte for each element in both numbers; big-endian, so that the first element has the highest bits.
        both = int.from_bytes(last, "big") & int.from_bytes(before, "big")
        if both:
            return start // width + len(last) - 1 - (both.bit_length() - 1) // 8
    return None


def transposed(data: memoryview, dtype: str, shape: tuple[int, int]) -> memoryview:
    """A matrix [n, m] as [m, n]: a copy, row-major, of the same dtype; ``shape`` is [n, m]."""
    rows, columns = shape
    width = WIDTH_OF[dtype]
    out = memoryview(bytearray(len(data)))
    words, turned = (view.cast("I") if width == 4 else view.cast("H") for view in (data, out))  # noqa: PLR2004 - F32
    for column in range(columns):
        turned[column * rows : (column + 1) * rows] = words[column::columns]
    return out.toreadonly()
