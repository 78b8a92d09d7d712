"""Bounded reading of the primitives of a GGUF header: integers, strings, typed values, arrays.

Owns the value encoding of ``docs/gguf.md`` (ggml project). Every length is checked against the bytes that remain before
anything is read or allocated. Must not know which keys or tensors exist.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from lattice_core.errors import ModelError

if TYPE_CHECKING:
    from pathlib import Path

_BOOL, _STRING, _ARRAY, _FLOAT32 = 7, 8, 9, 6
_SCALARS: dict[int, str] = {
    0: "<u1",
    1: "<i1",
    2: "<u2",
    3: "<i2",
    4: "<u4",
    5: "<i4",
    6: "<f4",
    10: "<u8",
    11: "<i8",
    12: "<f8",
}
_SMALLEST = {_BOOL: 1, _STRING: 8, _ARRAY: 12} | {number: np.dtype(code).itemsize for number, code in _SCALARS.items()}
_MAX_NESTING = 4
_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")


class Cursor:
    """A position in the bytes of one file. ``source`` is a read-only buffer, ``path`` is for messages."""

    def __init__(self, source: memoryview, path: Path) -> None:
        self._source = source
        self._path = path
        self.position = 0

    @property
    def remaining(self) -> int:
        """Bytes between the position and the end of the file."""
        return len(self._source) - self.position

    def fail(self, cause: str) -> NoReturn:
        """Raise ``ModelError`` naming the file and the position."""
        raise ModelError(f"{self._path}: {cause} (at byte {self.position})")

    def need(self, nbytes: int, what: str) -> None:
        """Raise unless ``nbytes`` remain."""
        if nbytes > self.remaining:
            self.fail(f"the file is truncated or damaged: {what} needs {nbytes} bytes, {self.remaining} remain")

    def u32(self, what: str) -> int:
        """An unsigned 32-bit integer."""
        self.need(4, what)
        value: int = _U32.unpack_from(self._source, self.position)[0]
        self.position += 4
        return value

    def u64(self, what: str) -> int:
        """An unsigned 64-bit integer."""
        self.need(8, what)
        value: int = _U64.unpack_from(self._source, self.position)[0]
        self.position += 8
        return value

    def string(self, what: str) -> str:
        """A string with its length in front; must be UTF-8."""
        length = self.u64(what)
        self.need(length, what)
        start = self.position
        try:
            text = str(self._source[start : start + length], "utf-8")
        except UnicodeDecodeError:
            self.fail(f"{what} is not UTF-8 text")
        self.position = start + length
        return text

    def value(self, what: str) -> Any:
        """A typed value: int, float, bool, str, a numpy array of numbers or booleans, or a list of strings or arrays."""
        return self._typed(self.u32(what), what, 0)

    def _typed(self, kind: int, what: str, depth: int) -> Any:
        if kind == _STRING:
            return self.string(what)
        if kind == _ARRAY:
            return self._array(what, depth)
        if kind not in _SMALLEST:
            self.fail(f"{what} has the unknown value type {kind}")
        number = self._numbers(kind, 1, what)[0]
        # The shortest decimal that gives the same 32-bit float is what the author wrote: 1e-05, not 9.99999974e-06.
        return float(str(number)) if kind == _FLOAT32 else number.item()

    def _array(self, what: str, depth: int) -> Any:
        kind, count = self.u32(what), self.u64(what)
        if kind not in _SMALLEST:
            self.fail(f"{what} is an array of the unknown value type {kind}")
        self.need(count * _SMALLEST[kind], f"{what} with {count} elements")
        if kind == _STRING:
            return [self.string(what) for _ in range(count)]
        if kind == _ARRAY:
            if depth == _MAX_NESTING:
                self.fail(f"{what} nests arrays more than {_MAX_NESTING} deep")
            return [self._array(what, depth + 1) for _ in range(count)]
        return self._numbers(kind, count, what)

    def _numbers(self, kind: int, count: int, what: str) -> np.ndarray:
        dtype = np.dtype(_SCALARS.get(kind, "<u1"))
        self.need(count * dtype.itemsize, what)
        numbers = np.frombuffer(self._source, dtype, count, self.position)
        if kind == _BOOL:
            if numbers.max(initial=0) > 1:
                self.fail(f"{what} is a boolean that is neither 0 nor 1")
            numbers = numbers.astype(np.bool_)
        self.position += count * dtype.itemsize
        return numbers
