"""Reads two facts from the head of a GGUF file: its architecture and its file type. Never touches tensors.

Format: the GGUF specification of ggml, versions 2 and 3, little-endian: magic, version u32, tensor count u64, pair count u64,
then pairs of key (length u64, bytes), type u32 and value.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from attrs import frozen

if TYPE_CHECKING:
    from pathlib import Path
    from typing import BinaryIO

_SCALAR_BYTES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_U32, _STRING, _ARRAY = 4, 8, 9
_MAX_PAIRS = 4096
_MAX_KEY_BYTES = 65_535
_MAX_STRING_BYTES = 16 << 20
_MAX_ELEMENTS = 4 << 20
_VERSIONS = (2, 3)

# `general.file_type`, as the specification numbers it.
_FILE_TYPES = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K", 11: "Q3_K_S", 12: "Q3_K_M",
    13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S", 17: "Q5_K_M", 18: "Q6_K", 19: "IQ2_XXS", 20: "IQ2_XS",
    21: "Q2_K_S", 22: "IQ3_XS", 23: "IQ3_XXS", 24: "IQ1_S", 25: "IQ4_NL", 26: "IQ3_S", 27: "IQ3_M", 28: "IQ2_S",
    29: "IQ2_M", 30: "IQ4_XS", 31: "IQ1_M", 32: "BF16", 36: "TQ1_0", 37: "TQ2_0", 38: "MXFP4",
}  # fmt: skip


@frozen
class GgufHead:
    """``architecture`` such as ``llama``; ``file_type`` such as ``Q4_1``, empty where the file does not say."""

    architecture: str
    file_type: str


def read_gguf_head(path: Path) -> GgufHead:
    """The facts about the file. Raises ``ValueError`` in words where it is no GGUF file or a damaged one, and ``OSError``."""
    found: dict[str, str | int] = {}
    with path.open("rb") as file:
        cursor = _Cursor(file, path.stat().st_size)
        if cursor.take(4) != b"GGUF":
            msg = "it does not begin with GGUF"
            raise ValueError(msg)
        version = cursor.number("<I")
        if version not in _VERSIONS:
            raise ValueError(f"its GGUF version {version} is not 2 or 3 in little-endian order")
        cursor.number("<Q")
        pairs = cursor.number("<Q")
        if pairs > _MAX_PAIRS:
            raise ValueError(f"it claims {pairs} metadata pairs, more than {_MAX_PAIRS}")
        for _ in range(pairs):
            key = cursor.string(_MAX_KEY_BYTES)
            kind = cursor.number("<I")
            if key == "general.architecture" and kind == _STRING:
                found[key] = cursor.string(_MAX_KEY_BYTES)
            elif key == "general.file_type" and kind == _U32:
                found[key] = cursor.number("<I")
            else:
                cursor.skip_value(kind)
            if len(found) == 2:  # noqa: PLR2004 - both facts are known
                break
    if "general.architecture" not in found:
        msg = "it names no architecture"
        raise ValueError(msg)
    number = found.get("general.file_type")
    name = "" if number is None else _FILE_TYPES.get(int(number), f"type {number}")
    return GgufHead(str(found["general.architecture"]), name)


class _Cursor:
    """Reads forward in a file, never beyond its end and never more than a bound at once."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file = file
        self._left = size

    def take(self, count: int) -> bytes:
        if count > self._left:
            msg = "it ends inside its header"
            raise ValueError(msg)
        self._left -= count
        return self._file.read(count)

    def skip(self, count: int) -> None:
        if count > self._left:
            msg = "it ends inside its header"
            raise ValueError(msg)
        self._left -= count
        self._file.seek(count, 1)

    def number(self, form: str) -> int:
        (value,) = struct.unpack(form, self.take(struct.calcsize(form)))
        return int(value)

    def string(self, limit: int) -> str:
        length = self.number("<Q")
        if length > limit:
            raise ValueError(f"a string in its header claims {length} bytes, more than {limit}")
        return self.take(length).decode("utf-8", "replace")

    def skip_value(self, kind: int, depth: int = 0) -> None:
        if kind in _SCALAR_BYTES:
            self.skip(_SCALAR_BYTES[kind])
        elif kind == _STRING:
            self._skip_strings(1)
        elif kind == _ARRAY and depth == 0:
            element, count = self.number("<I"), self.number("<Q")
            if count > _MAX_ELEMENTS:
                raise ValueError(f"an array in its header claims {count} elements, more than {_MAX_ELEMENTS}")
            if element in _SCALAR_BYTES:
                self.skip(count * _SCALAR_BYTES[element])
            elif element == _STRING:
                self._skip_strings(count)
            else:
                raise ValueError(f"an array in its header holds type {element}, which is unknown")
        else:
            raise ValueError(f"a value in its header has type {kind}, which is unknown")

    def _skip_strings(self, count: int) -> None:
        for _ in range(count):
            length = self.number("<Q")
            if length > _MAX_STRING_BYTES:
                raise ValueError(f"a string in its header claims {length} bytes, more than {_MAX_STRING_BYTES}")
            # Reading small pieces stays in the file's buffer, seeking would drop it.
            self.take(length)
