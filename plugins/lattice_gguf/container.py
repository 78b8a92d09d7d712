"""One GGUF file: header, metadata and tensor table, checked; the bytes of tensors by memory map.

Source of the layout: ``docs/gguf.md`` (ggml project), versions 2 and 3, little-endian. Must not know architectures,
tokenizers or how a tensor type is decoded.
"""

from __future__ import annotations

import math
import mmap
from typing import TYPE_CHECKING, Any

from attrs import frozen

from lattice_core.errors import ModelError
from lattice_gguf.cursor import Cursor
from lattice_gguf.tensor_types import TENSOR_TYPES, UNREADABLE, TensorType

if TYPE_CHECKING:
    from pathlib import Path

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_SMALLEST_PAIR = 8 + 4 + 1
_SMALLEST_TENSOR = 8 + 4 + 4 + 8
_MAX_KEY = 65535
_MAX_DIMENSIONS = 4
_MAX_ELEMENTS = 1 << 48
_DEFAULT_ALIGNMENT = 32


@frozen
class TensorInfo:
    """Where a tensor lies. ``shape`` is row-major (the file stores it reversed); ``start`` counts from the file's begin."""

    name: str
    type: TensorType
    shape: tuple[int, ...]
    start: int
    nbytes: int


class GgufFile:
    """An opened file. ``metadata`` as in ``Cursor.value``, ``tensors`` by their names in the file.

    Raises ``ModelError`` that names the file and the cause when the file is not a sound GGUF file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        source = self._source = _mapped(path)
        cursor = Cursor(source, path)
        tensor_count, pair_count = _read_header(cursor, path)
        self.metadata = _read_metadata(cursor, pair_count)
        alignment = self._alignment()
        tensors = [_read_tensor_info(cursor, alignment) for _ in range(tensor_count)]
        base = -(-cursor.position // alignment) * alignment
        self.tensors = self._placed(tensors, base)

    def read(self, info: TensorInfo) -> memoryview:
        """The stored bytes of a tensor: a read-only view into the map, which lives as long as the view."""
        return self._source[info.start : info.start + info.nbytes]

    def _alignment(self) -> int:
        alignment = self.metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
        if not isinstance(alignment, int) or alignment < 8 or alignment % 8:  # noqa: PLR2004 - the format's own unit
            raise ModelError(f"{self.path}: general.alignment is {alignment}, it must be a multiple of 8")
        return alignment

    def _placed(self, tensors: list[TensorInfo], base: int) -> dict[str, TensorInfo]:
        """Tensors by name, with positions from the file's begin; checks names, ends and overlaps."""
        placed: dict[str, TensorInfo] = {}
        end, before = base, ""
        for info in sorted(tensors, key=lambda info: info.start):
            if info.name in placed:
                raise ModelError(f"{self.path}: tensor {info.name!r} stands twice in the file")
            start = base + info.start
            if start < end:
                raise ModelError(f"{self.path}: tensors {before!r} and {info.name!r} overlap")
            end, before = start + info.nbytes, info.name
            if end > len(self._source):
                cause = f"the file is truncated: tensor {info.name!r} ends at byte {end}, the file at {len(self._source)}"
                raise ModelError(f"{self.path}: {cause}; get it again")
            placed[info.name] = TensorInfo(info.name, info.type, info.shape, start, info.nbytes)
        return placed


def _mapped(path: Path) -> memoryview:
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            if size < len(_MAGIC):
                raise ModelError(f"{path}: {size} bytes are no GGUF file")
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror or error}") from error


def _read_header(cursor: Cursor, path: Path) -> tuple[int, int]:
    magic = cursor.u32("the magic number").to_bytes(4, "little")
    if magic != _MAGIC:
        raise ModelError(f"{path}: is no GGUF file: it begins with {magic!r}, not with {_MAGIC!r}")
    version = cursor.u32("the version")
    swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
    if version not in _VERSIONS and swapped in _VERSIONS:
        raise ModelError(f"{path}: is a big-endian GGUF file; only little-endian ones are read")
    if version not in _VERSIONS:
        raise ModelError(f"{path}: has GGUF version {version}; versions 2 and 3 are read, convert the model again")
    tensors, pairs = cursor.u64("the tensor count"), cursor.u64("the metadata count")
    cursor.need(tensors * _SMALLEST_TENSOR + pairs * _SMALLEST_PAIR, f"a header of {pairs} keys and {tensors} tensors")
    return tensors, pairs


def _read_metadata(cursor: Cursor, count: int) -> dict[str, Any]:
    metadata: dict[str, Any] = {}
    for _ in range(count):
        key = cursor.string("a metadata key")
        if not key or len(key) > _MAX_KEY or not key.isascii():
            cursor.fail(f"metadata key {key[:80]!r} is not valid")
        if key in metadata:
            cursor.fail(f"metadata key {key!r} stands twice in the file")
        metadata[key] = cursor.value(f"metadata key {key!r}")
    return metadata


def _read_tensor_info(cursor: Cursor, alignment: int) -> TensorInfo:
    """A row of the tensor table; ``start`` still counts from the begin of the tensor data."""
    name = cursor.string("a tensor name")
    what = f"tensor {name!r}"
    dimensions = cursor.u32(what)
    if not 1 <= dimensions <= _MAX_DIMENSIONS:
        cursor.fail(f"{what} has {dimensions} dimensions, 1 to {_MAX_DIMENSIONS} are possible")
    shape = tuple(reversed([cursor.u64(what) for _ in range(dimensions)]))
    number, start = cursor.u32(what), cursor.u64(what)
    kind = TENSOR_TYPES.get(number)
    if kind is None:
        readable = ", ".join(known.name for known in TENSOR_TYPES.values())
        cursor.fail(f"{what} has the type {UNREADABLE.get(number, f'number {number}')}, which is not read (only {readable})")
    elements = math.prod(shape)
    if not 0 < elements <= _MAX_ELEMENTS:
        cursor.fail(f"{what} has the impossible shape {list(shape)}")
    if shape[-1] % kind.elements:
        cursor.fail(f"{what}: rows of {shape[-1]} elements are not made of {kind.name} blocks of {kind.elements}")
    if start % alignment:
        cursor.fail(f"{what} begins at offset {start}, which is not a multiple of the alignment {alignment}")
    return TensorInfo(name, kind, shape, start, elements // kind.elements * kind.nbytes)
