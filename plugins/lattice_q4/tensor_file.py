"""One ``.q4`` or ``.f16`` file: its header, checked in full against the file's length.

Nothing but the header is read here. Must not know tensor names, nor how the bytes after the header travel.
"""

from __future__ import annotations

import os
import struct
from math import prod
from typing import TYPE_CHECKING

from attrs import frozen

from lattice_core.errors import ModelError
from lattice_core.untrusted_files import open_regular, read_into
from lattice_q4.khq4 import BLOCK, BLOCK_BYTES, HALF_MAGIC, HALF_VERSION, MAGIC, VERSION
from lattice_q4.model_files import PACKED_SUFFIX

if TYPE_CHECKING:
    from pathlib import Path
    from typing import BinaryIO

_START = struct.Struct("<4sII")
_SIZE = 8
_MAX_DIMENSIONS = 16
_MAX_LENGTH = (1 << 63) - 1
_POINTER = b"vers"  # as a Git LFS pointer begins: "version https://git-lfs..."


@frozen
class TensorFile:
    """A sound file of ``count`` values. ``start`` is where the payload begins and ``nbytes`` how long it is, in bytes."""

    path: Path
    packed: bool
    shape: tuple[int, ...]
    count: int
    start: int
    nbytes: int

    @property
    def blocks(self) -> int:
        """How many blocks of 32 values hold them."""
        return -(-self.count // BLOCK)

    @property
    def aligned(self) -> bool:
        """Whether no block reaches over the end of a row, so that the packed form has a group for each."""
        return bool(self.shape) and self.shape[-1] % BLOCK == 0

    def open(self) -> BinaryIO:
        """The file at the begin of the payload, the header found again as it was. Raises ``ModelError``."""
        file = open_regular(self.path, follow=False)
        try:
            found = _parsed(file, self.path)
            file.seek(self.start)
        except BaseException:
            file.close()
            raise
        if found != self:
            file.close()
            raise ModelError(f"{self.path}: has changed since the model was opened; open it again")
        return file


def read_tensor_file(path: Path) -> TensorFile:
    """Check a file's header; the suffix of its name says which format it must have. Raises ``ModelError``."""
    with open_regular(path, follow=False) as file:
        return _parsed(file, path)


def _parsed(file: BinaryIO, path: Path) -> TensorFile:
    size = os.fstat(file.fileno()).st_size
    packed = path.name.endswith(PACKED_SUFFIX)
    if size < _START.size:
        raise ModelError(f"{path}: is incomplete: {size} bytes hold no header; get it again")
    head = bytearray(min(size, _START.size + (_MAX_DIMENSIONS + 1) * _SIZE))
    read_into(file, head, path)
    magic, version, dimensions = _START.unpack_from(head)
    _check_kind(magic, version, path, packed=packed)
    start = _START.size + (dimensions + 1) * _SIZE
    if dimensions > _MAX_DIMENSIONS:
        raise ModelError(f"{path}: announces {dimensions} dimensions, at most {_MAX_DIMENSIONS} are possible: it is damaged")
    if start > size:
        raise ModelError(f"{path}: is incomplete: the header alone needs {start} bytes, {size} are here; get it again")
    *shape, count = struct.unpack_from(f"<{dimensions + 1}Q", head, _START.size)
    product = prod(shape)
    if product > _MAX_LENGTH:
        raise ModelError(f"{path}: the shape {shape} holds more than 2^63 - 1 values: it is damaged")
    if product != count:
        raise ModelError(f"{path}: says that it holds {count} values, its shape {shape} holds {product}: it is damaged")
    nbytes = -(-count // BLOCK) * BLOCK_BYTES if packed else count * 2
    _check_length(size, start + nbytes, path)
    return TensorFile(path, packed, tuple(shape), count, start, nbytes)


def _check_kind(magic: bytes, version: int, path: Path, *, packed: bool) -> None:
    if magic == _POINTER:
        raise ModelError(f"{path}: is a Git LFS pointer, not the file that it stands for; get that one")
    expected, known = (MAGIC, VERSION) if packed else (HALF_MAGIC, HALF_VERSION)
    if magic != expected:
        raise ModelError(f"{path}: is no {expected.decode()} file: it begins with {magic!r}")
    if packed and version == 1:
        raise ModelError(f"{path}: is of KHQ4 version 1, which is not read; re-quantize the model by `lattice quantize`")
    if version != known:
        raise ModelError(f"{path}: is of {expected.decode()} version {version}; only version {known} is read")


def _check_length(size: int, expected: int, path: Path) -> None:
    if size < expected:
        raise ModelError(f"{path}: is incomplete: {expected} bytes are expected, {size} are here; get it again")
    if size > expected:
        raise ModelError(f"{path}: {size - expected} bytes follow the tensor's {expected}: it is damaged")
