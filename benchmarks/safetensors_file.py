"""Writes safetensors files block by block, so that a tensor need never be in memory as a whole. Needs numpy only."""

from __future__ import annotations

import json
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

ITEM_BYTES = {"F32": 4, "U32": 4, "BF16": 2}


class Tensor(NamedTuple):
    """A tensor to write; ``blocks`` makes its elements in row-major order, in arrays of the stored type."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    blocks: Callable[[], Iterable[np.ndarray]]


def write(path: Path, tensors: Sequence[Tensor], made_for: str = "pt") -> None:
    """The safetensors format: header length u64, JSON header, the tensors' bytes one after another.

    ``made_for`` is the framework whose layout the tensors have, ``pt`` or ``mlx``. Raises ``ValueError`` where blocks
    give another number of bytes than their tensor's shape.
    """
    header: dict[str, Any] = {"__metadata__": {"format": made_for}}
    end = 0
    for tensor in tensors:
        start, end = end, end + prod(tensor.shape) * ITEM_BYTES[tensor.dtype]
        header[tensor.name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": [start, end]}
    encoded = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(encoded).to_bytes(8, "little") + encoded)
        for tensor in tensors:
            before = file.tell()
            for block in tensor.blocks():
                file.write(np.ascontiguousarray(block).data)
            if file.tell() - before != prod(tensor.shape) * ITEM_BYTES[tensor.dtype]:
                raise ValueError(f"{tensor.name}: {file.tell() - before} bytes do not fill {tensor.dtype} {tensor.shape}")


def bfloat16(array: np.ndarray) -> np.ndarray:
    """The upper halves of float32 words as u16, rounded to nearest, ties to even."""
    bits = np.ascontiguousarray(array).view(np.uint32)
    return ((bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)).astype("<u2")
