"""One safetensors file: its header, checked in full, and the bytes of its tensors by memory map.

Source of the layout: the format description of the safetensors project: 8 bytes little-endian length, a JSON object, data.
Must not know architectures, configurations, shards or what a tensor means.
"""

from __future__ import annotations

import mmap
import os
from types import MappingProxyType
from typing import TYPE_CHECKING

from lattice_core.errors import ModelError
from lattice_core.untrusted_files import open_regular
from lattice_safetensors.header import LENGTH_BYTES, TensorInfo, read_header, shown

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["SafetensorsFile", "TensorInfo"]

_POINTER = b"version https://git-lfs"


class SafetensorsFile:
    """An opened file. ``tensors`` by their stored names, ``metadata`` is the header's ``__metadata__``, ``nbytes`` all data.

    Nothing but the header is read. Raises ``ModelError`` that names the file and the cause when it is not a sound file; one
    that is shorter than its header says is reported as incomplete before anything else.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._map: mmap.mmap | None = None
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size < LENGTH_BYTES:
                raise ModelError(f"{path}: is incomplete: {size} bytes are no safetensors file; get it again")
            try:
                head = file.read(len(_POINTER))
                if head == _POINTER:
                    raise ModelError(f"{path}: is a Git LFS pointer, not the file that it stands for; get that one")
                file.seek(LENGTH_BYTES)
                header = read_header(file, int.from_bytes(head[:LENGTH_BYTES], "little"), size, path)
                self._map = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
            except (OSError, ValueError) as error:
                raise ModelError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
        self.metadata: Mapping[str, str] = MappingProxyType(header.metadata)
        self.tensors: Mapping[str, TensorInfo] = MappingProxyType(header.tensors)
        self.nbytes = sum(info.nbytes for info in header.tensors.values())

    def read(self, name: str) -> memoryview:
        """The stored bytes of a tensor: a read-only view into the map, which lives as long as the view.

        Raises ``ModelError`` for an unknown name, and after ``close``.
        """
        if self._map is None:
            raise ModelError(f"{self.path}: tensor {shown(name)} is read after the file was closed")
        if name not in self.tensors:
            raise ModelError(f"{self.path}: has no tensor {shown(name)}")
        info = self.tensors[name]
        return memoryview(self._map)[info.start : info.start + info.nbytes]

    def release(self, name: str) -> None:
        """Give the memory of a tensor's pages back, so that who reads all tensors in turn does not come to hold all.

        Views of it stay valid: the pages come back from the file when they are touched.
        """
        info = self.tensors[name]
        first = -(-info.start // mmap.PAGESIZE) * mmap.PAGESIZE
        length = (info.start + info.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE - first
        if self._map is not None and length > 0:
            self._map.madvise(mmap.MADV_DONTNEED, first, length)

    def close(self) -> None:
        """Let go of the file; the map lives on as long as a view into it does."""
        self._map = None
