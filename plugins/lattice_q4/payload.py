"""The values of a ``.q4`` or ``.f16`` file on their way to a backend: re-laid without loss, or expanded.

A block's 16 bytes of codes, read as four little-endian u32 words, are what ``AffineQuantization`` says of 4 bits in groups
of 32; so scale, bias and codes only have to be told apart. Reads piece by piece: no more than the result is held. Every
scale and bias is checked on the way. Must not know tensor names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from attrs import frozen

from lattice_core.errors import ModelError
from lattice_core.untrusted_files import read_into
from lattice_q4.khq4 import BLOCK

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lattice_q4.tensor_file import TensorFile

_RECORD = np.dtype([("scale", "<f2"), ("bias", "<f2"), ("codes", "V16")])
_CHUNK = 1 << 15  # blocks at a time: 640 KiB of a file


@frozen(eq=False)
class Packed:
    """Words of 4-bit codes (u32), and an F16 scale and bias for each block."""

    words: memoryview
    scales: memoryview
    biases: memoryview


def packed(file: TensorFile) -> Packed:
    """The blocks of a ``.q4`` file, re-laid. Raises ``ModelError`` that names file and block for one that is damaged."""
    words = np.empty(file.blocks, "V16")
    scales, biases = np.empty(file.blocks, "<f2"), np.empty(file.blocks, "<f2")
    for place, blocks in _blocks(file):
        words[place], scales[place], biases[place] = blocks["codes"], blocks["scale"], blocks["bias"]
    return Packed(_bytes_of(words), _bytes_of(scales), _bytes_of(biases))


def expanded(file: TensorFile) -> memoryview:
    """The values of a ``.q4`` file in float32, in the order of the flattened tensor. Raises ``ModelError`` as ``packed``."""
    values = np.empty((file.blocks, BLOCK), np.float32)
    for place, blocks in _blocks(file):
        scale, bias = (blocks[name].astype(np.float32)[:, None] for name in ("scale", "bias"))
        codes = np.ascontiguousarray(blocks["codes"]).view(np.uint8).reshape(-1, BLOCK // 2)
        values[place, 0::2] = (codes & 15) * scale + bias
        values[place, 1::2] = (codes >> 4) * scale + bias
    return _bytes_of(values.reshape(-1)[: file.count])


def halves(file: TensorFile) -> memoryview:
    """The values of a ``.f16`` file. Raises ``ModelError`` for one that is not finite."""
    values = np.empty(file.count, "<f2")
    with file.open() as stream:
        read_into(stream, _bytes_of(values), file.path)
    finite = np.isfinite(values)
    if not finite.all():
        at = int(np.argmin(finite))
        raise ModelError(f"{file.path}: value {at} of {file.count} is {values[at]!s}, which is not finite: it is damaged")
    return _bytes_of(values)


def _blocks(file: TensorFile) -> Iterator[tuple[slice, np.ndarray]]:
    """The blocks of a file in order, as records; the slice says which. The record array is used again for the next."""
    buffer = np.empty(min(file.blocks, _CHUNK), _RECORD)
    with file.open() as stream:
        for start in range(0, file.blocks, _CHUNK):
            stop = min(start + _CHUNK, file.blocks)
            blocks = buffer[: stop - start]
            read_into(stream, _bytes_of(blocks), file.path)
            _check(blocks, start, file.path)
            yield slice(start, stop), blocks


def _check(blocks: np.ndarray, first: int, path: Path) -> None:
    scales, biases = blocks["scale"], blocks["bias"]
    sound = np.isfinite(scales) & (scales > 0) & np.isfinite(biases)
    if not sound.all():
        at = int(np.argmin(sound))
        found = f"the scale {scales[at]!s} and the bias {biases[at]!s}"
        raise ModelError(f"{path}: block {first + at} has {found}; scales are above 0 and both finite: it is damaged")


def _bytes_of(array: np.ndarray) -> memoryview:
    return array.view(np.uint8).data
