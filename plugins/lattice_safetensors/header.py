"""The header of a safetensors file: read within bounds, every entry checked, all ranges accounted for.

Owns the rules of the format's description: known dtypes, byte lengths that follow from shapes, ranges that cover the data
from its first byte to its last without hole or overlap. Must not know where the bytes go.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from attrs import evolve, frozen

from lattice_core.errors import ModelError
from lattice_core.untrusted_files import load_bounded
from lattice_core.wire import JSONSyntaxError
from lattice_safetensors.dtypes import BITS_OF

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import BinaryIO

LENGTH_BYTES = 8
MAX_HEADER = 4 << 20
_MAX_VALUES = 1 << 20
_MAX_DIMENSIONS = 16
_MAX_DIMENSION = (1 << 63) - 1
_METADATA = "__metadata__"
_SHOWN = 120


@frozen
class TensorInfo:
    """Where a tensor lies: ``shape`` is row-major, ``start`` counts from the file's begin, both sizes are in bytes."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    nbytes: int


@frozen
class Header:
    """What a header says."""

    metadata: Mapping[str, str]
    tensors: Mapping[str, TensorInfo]


def shown(name: str) -> str:
    """A name from a file for a message: in quotes, and never long."""
    return repr(name if len(name) <= _SHOWN else name[:_SHOWN] + "...")


def read_header(file: BinaryIO, length: int, size: int, path: Path) -> Header:
    """The header of ``length`` bytes at the position of ``file``, which has ``size`` bytes. Raises ``ModelError``."""
    if not 0 < length <= MAX_HEADER:
        cause = f"its first 8 bytes announce a header of {length} bytes, 1 to {MAX_HEADER} are possible"
        raise ModelError(f"{path}: is no safetensors file, or a damaged one: {cause}")
    base = LENGTH_BYTES + length
    if size < base:
        raise ModelError(f"{path}: is incomplete: the header alone needs {base} bytes, {size} are here; get it again")
    text = file.read(length)
    if len(text) < length or not text.startswith(b"{"):
        raise ModelError(f"{path}: is no safetensors file, or a damaged one: the header is no JSON object")
    try:
        entries: dict[str, Any] = load_bounded(text, values=_MAX_VALUES)
    except JSONSyntaxError as error:
        raise ModelError(f"{path}: the header is no valid JSON: {error}") from error
    metadata = _metadata(entries.pop(_METADATA, {}), path)
    return Header(metadata, _placed([_tensor(name, entry, path) for name, entry in entries.items()], base, size, path))


def _metadata(found: Any, path: Path) -> dict[str, str]:
    if found is None:  # MLX writes null where it was given no metadata
        return {}
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise ModelError(f"{path}: {_METADATA} in the header is no object of strings")
    return found


def _tensor(name: str, entry: Any, path: Path) -> TensorInfo:
    """An entry of the header; ``start`` still counts from the begin of the data."""
    what = f"{path}: tensor {shown(name)}"
    if not isinstance(entry, dict) or not {"dtype", "shape", "data_offsets"} <= entry.keys():
        raise ModelError(f"{what} is not described by dtype, shape and data_offsets")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in BITS_OF:
        raise ModelError(f"{what} has the unknown dtype {shown(str(dtype))}; known are {', '.join(BITS_OF)}")
    if not isinstance(shape, list) or len(shape) > _MAX_DIMENSIONS or not all(_is_size(number) for number in shape):
        limits = f"at most {_MAX_DIMENSIONS} sizes of 0 to 2^63 - 1 are possible"
        raise ModelError(f"{what} has the impossible shape {shown(str(shape))}; {limits}")
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(_is_size(number) for number in offsets):  # noqa: PLR2004 - start and end
        raise ModelError(f"{what} has the data_offsets {shown(str(offsets))}, which are no begin and end")
    start, end = offsets
    if start > end:
        raise ModelError(f"{what} begins at offset {start}, after its end at {end}")
    bits = math.prod(shape) * BITS_OF[dtype]
    if bits != (end - start) * 8:
        needed = f"{bits // 8} bytes" if bits % 8 == 0 else f"{bits} bits"
        raise ModelError(f"{what} of {dtype} {shape} needs {needed}, its data_offsets span {end - start} bytes")
    return TensorInfo(name, dtype, tuple(shape), start, end - start)


def _is_size(number: Any) -> bool:
    return type(number) is int and 0 <= number <= _MAX_DIMENSION


def _placed(tensors: list[TensorInfo], base: int, size: int, path: Path) -> dict[str, TensorInfo]:
    """Tensors by name in the order of the header, with positions from the file's begin."""
    ordered = sorted(tensors, key=lambda info: (info.start, info.nbytes))
    expected = base + max((info.start + info.nbytes for info in ordered), default=0)
    if size < expected:
        raise ModelError(f"{path}: is incomplete: {expected} bytes are expected, {size} are here; get it again")
    end, before = 0, "the header"
    for info in ordered:
        if info.start < end:
            raise ModelError(f"{path}: tensor {shown(info.name)} overlaps with {before}: the file is damaged")
        if info.start > end:
            gap = f"{info.start - end} bytes between {before} and tensor {shown(info.name)} belong to no tensor"
            raise ModelError(f"{path}: {gap}: the file is damaged")
        end, before = info.start + info.nbytes, f"tensor {shown(info.name)}"
    if size > expected:
        raise ModelError(f"{path}: {size - expected} bytes follow the last tensor: the file is damaged")
    return {info.name: evolve(info, start=base + info.start) for info in tensors}
