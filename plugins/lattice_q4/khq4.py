"""The codec of KHQ4 version 2 and KHF1 files: exact bytes from float32 values, and which tensor becomes which file.

Owns both layouts (all numbers little-endian), the two encoders, the names of files and the rule that chooses between the
formats. Must not know directories, indices or configurations.

========  =====================================================================================================
part      bytes
========  =====================================================================================================
magic     ``KHQ4`` or ``KHF1``
version   u32: 2 for KHQ4, 1 for KHF1
ndim      u32, then as many u64 dimensions, outermost first
length    u64, the product of the dimensions
payload   KHQ4: blocks of 20 bytes for 32 weights of the flattened tensor (blocks take no notice of rows):
          f16 scale, f16 bias, 16 bytes of two weights each, the even one in the low nibble; ``w = q * scale + bias``.
          KHF1: f16 values
========  =====================================================================================================
"""

from __future__ import annotations

import struct
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MAGIC, VERSION = b"KHQ4", 2
HALF_MAGIC, HALF_VERSION = b"KHF1", 1
BLOCK, BLOCK_BYTES = 32, 20
_LEVELS, _MIDDLE = 15, 8
_CHUNK = 1 << 15  # blocks, so that temporary arrays stay at a few MiB
_MAX_DIMENSION = (1 << 63) - 1
_PACKED_SUFFIXES = ("_proj", "_proj_a", "_proj_b", "_proj_qkv", "_proj_z", "lm_head", "embed_tokens")
_EXPERTS = (".experts.gate_up_proj", ".experts.down_proj")
_HALF_PARTS = ("norm.weight", "norm_", ".bias", "A_log", "dt_bias", "conv1d.weight")


def header(shape: Sequence[int]) -> bytes:
    """The bytes before the blocks of a ``.q4`` file of this shape. Raises ``ValueError`` for sizes that do not fit."""
    return _header(MAGIC, VERSION, shape)


def encode(values: np.ndarray, *, symmetric: bool = False) -> bytes:
    """A whole ``.q4`` file for a tensor of any shape, taken as float32.

    Raises ``ValueError`` for values that are not finite, and for blocks whose scale or bias a half cannot hold.
    """
    return header(values.shape) + encode_blocks(values.reshape(-1), symmetric=symmetric)


def encode_blocks(flat: np.ndarray, *, symmetric: bool = False) -> bytes:
    """Blocks for values [n]; what follows in the same tensor may only follow a multiple of 32 values.

    Asymmetric: ``scale = (max - min) / 15``, ``bias = min``, ``q = round((w - min) * (1 / scale))``; symmetric:
    ``scale = absmax / 7``, ``bias = -8 * scale``, ``q = round(w / scale) + 8``; q is clamped to 0..15, halves are rounded away
    from zero, and a scale that a half holds as zero is 1. All in float32, symmetric blocks of float64 values in float64
    (rotations are computed in it); only the stored scale and bias are rounded to half. The places after the last value of
    a short block hold the code of 0.0, which takes no part in its range.

    Raises ``ValueError`` as ``encode`` does; it counts values and blocks from the begin of ``flat``.
    """
    whole = len(flat) // BLOCK
    dtype = np.dtype(np.float64 if symmetric and flat.dtype == np.float64 else np.float32)
    blocks = np.empty((-(-len(flat) // BLOCK), BLOCK_BYTES), np.uint8)
    for start in range(0, whole, _CHUNK):
        stop = min(start + _CHUNK, whole)
        table = _finite(flat[start * BLOCK : stop * BLOCK], dtype, start * BLOCK).reshape(-1, BLOCK)
        blocks[start:stop] = _encoded(table, BLOCK, start, symmetric=symmetric)
    if whole < len(blocks):
        rest = _finite(flat[whole * BLOCK :], dtype, whole * BLOCK)
        table = np.zeros((1, BLOCK), dtype)
        table[0, : len(rest)] = rest
        blocks[whole:] = _encoded(table, len(rest), whole, symmetric=symmetric)
    return blocks.tobytes()


def f16_file(values: np.ndarray) -> bytes:
    """A whole ``.f16`` file (KHF1) for a tensor of any shape, taken as float32.

    Raises ``ValueError`` for values that are not finite, and for those beyond the range of a half.
    """
    flat = _finite(values.reshape(-1), np.dtype(np.float32), 0)
    with np.errstate(over="ignore"):
        halves = flat.astype("<f2")
    _refuse(np.isfinite(halves), "value", lambda at: f"is {flat[at]!s}, beyond the 65504 that a half can hold", 0)
    return _header(HALF_MAGIC, HALF_VERSION, values.shape) + halves.tobytes()


def mangled(name: str) -> str:
    """The stem of a tensor's file: its name with ``_`` for everything but letters, digits and ``-``."""
    return "".join(character if character.isalnum() or character == "-" else "_" for character in name)


def is_quantised(name: str) -> bool | None:
    """Whether a tensor becomes a ``.q4`` file (True) or a ``.f16`` file (False), by its name; None: it is not stored."""
    if name.endswith(_EXPERTS):
        return True
    if name.endswith(".weight") and name.removesuffix(".weight").endswith(_PACKED_SUFFIXES):
        return True
    if any(part in name for part in _HALF_PARTS):
        return False
    return True if name.endswith(".weight") else None


def _header(magic: bytes, version: int, shape: Sequence[int]) -> bytes:
    length = prod(shape)
    if any(size < 0 for size in shape) or length > _MAX_DIMENSION:
        raise ValueError(f"the shape {list(shape)} is impossible: sizes and their product are 0 to 2^63 - 1")
    return magic + struct.pack(f"<II{len(shape)}QQ", version, len(shape), *shape, length)


def _finite(values: np.ndarray, dtype: np.dtype[Any], first: int) -> np.ndarray:
    with np.errstate(over="ignore"):
        found: np.ndarray = np.ascontiguousarray(values, dtype)
    _refuse(np.isfinite(found), "value", lambda at: f"is {found[at]!s}, which is not finite", first)
    return found


def _encoded(table: np.ndarray, real: int, first: int, *, symmetric: bool) -> np.ndarray:
    """Blocks uint8 [n, 20] of values [n, 32], of which the first ``real`` ones of each row count for the range."""
    counted = table[:, :real]
    with np.errstate(over="ignore"):
        if symmetric:
            scale = np.abs(counted).max(axis=1) / 7
        else:
            least = counted.min(axis=1)
            scale = (counted.max(axis=1) - least) / _LEVELS
        scale[scale.astype(np.float16) == 0] = 1
        bias = scale * -_MIDDLE if symmetric else least
        fields = np.stack([scale, bias], axis=1).astype("<f2")
    _refuse(
        np.isfinite(fields).all(axis=1),
        "block",
        lambda at: f"needs the scale {scale[at]!s} and the bias {bias[at]!s}, of which a half holds at most 65504",
        first,
    )
    if symmetric:
        steps = _rounded(table / scale[:, None]) + _MIDDLE
    else:
        steps = _rounded((table - least[:, None]) * (1 / scale)[:, None])
    codes = np.clip(steps, 0, _LEVELS).astype(np.uint8)
    return np.concatenate([fields.view(np.uint8), codes[:, 0::2] | codes[:, 1::2] << 4], axis=1)


def _rounded(numbers: np.ndarray) -> np.ndarray:
    """To the nearest integer, halves away from zero. Adding a half first would be wrong just below one."""
    whole = np.trunc(numbers)
    rounded: np.ndarray = whole + np.where(np.abs(numbers - whole) >= 0.5, np.sign(numbers), numbers.dtype.type(0))  # noqa: PLR2004 - a half
    return rounded


def _refuse(sound: np.ndarray, what: str, cause: Callable[[int], str], first: int) -> None:
    if not sound.all():
        at = int(np.argmin(sound))
        raise ValueError(f"{what} {first + at} {cause(at)}")
