"""Block types with a scale for each 16 weights, which no group of 32 can hold: expanded to half precision.

Sources: the block structures of ``ggml-common.h`` and their arithmetic in ``ggml-quants.c`` (ggml project). The error of
rounding to half precision, 2 ** -11 of a weight, is far below the step of these types.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lattice_gguf.affine import half

if TYPE_CHECKING:
    from collections.abc import Callable

_CHUNK_BLOCKS = 1 << 12
_WEIGHTS = 256
_SHIFTS = np.array([0, 2, 4, 6], np.uint8)[:, None]


def expand(decode: Callable[[np.ndarray], np.ndarray], blocks: np.ndarray) -> np.ndarray:
    """Weights, float16 [n, 256], of blocks, uint8 [n, bytes of a block]; float32 where one is too large for float16.

    Weights of a damaged file may come out infinite or not a number; the caller looks.
    """
    weights = _expand_to(np.dtype(np.float16), decode, blocks)
    if np.isfinite(weights).all():
        return weights
    return _expand_to(np.dtype(np.float32), decode, blocks)


def _expand_to(dtype: np.dtype[np.floating], decode: Callable[[np.ndarray], np.ndarray], blocks: np.ndarray) -> np.ndarray:
    weights = np.empty((len(blocks), _WEIGHTS), dtype)
    with np.errstate(invalid="ignore", over="ignore"):
        for start in range(0, len(blocks), _CHUNK_BLOCKS):
            weights[start : start + _CHUNK_BLOCKS] = decode(blocks[start : start + _CHUNK_BLOCKS])
    return weights


def _two_bits(octets: np.ndarray) -> np.ndarray:
    """Weights 32 * s to 32 * s + 31 of each 128 are bits 2 * s and 2 * s + 1 of 32 bytes: uint8 [n, 16, 16]."""
    return (octets.reshape(-1, 2, 1, 32) >> _SHIFTS & 3).reshape(-1, 16, 16)


def _q2_k(blocks: np.ndarray) -> np.ndarray:
    """``(d * s) * q - (dmin * t)``: 16 bytes of nibbles s (low) and t (high), 64 of q, then d and dmin."""
    scales, quants = blocks[:, :16], _two_bits(blocks[:, 16:80])
    weights: np.ndarray = (half(blocks, 80) * (scales & 15))[..., None] * quants
    weights -= (half(blocks, 82) * (scales >> 4))[..., None]
    return weights.reshape(-1, _WEIGHTS)


def _q3_k(blocks: np.ndarray) -> np.ndarray:
    """``d * (s - 32) * (q - 4)``: 32 bytes with the third bits of q, 64 with the lower two, 12 with s, then d.

    Bit b of byte i of the third bits belongs to weight 32 * b + i. The low nibbles of s 0-7 and 8-15 are the low and high
    nibbles of eight bytes; bits 2 * k and 2 * k + 1 of the last four bytes are the upper bits of s 4 * k to 4 * k + 3.
    """
    third = (blocks[:, None, :32] >> np.arange(8, dtype=np.uint8)[:, None] & 1).reshape(-1, 16, 16)
    quants = (_two_bits(blocks[:, 32:96]) | third << 2).astype(np.int8) - np.int8(4)
    lower = np.concatenate([blocks[:, 96:104] & 15, blocks[:, 96:104] >> 4], axis=1)
    upper = (blocks[:, None, 104:108] >> _SHIFTS & 3).reshape(-1, 16)
    scales = half(blocks, 108) * ((lower | upper << 4).astype(np.float32) - np.float32(32))
    weights: np.ndarray = scales[..., None] * quants
    return weights.reshape(-1, _WEIGHTS)


def _q6_k(blocks: np.ndarray) -> np.ndarray:
    """``d * s * (q - 32)``: 128 bytes with the low nibbles of q, 64 with the upper two bits, 16 signed bytes s, then d.

    For each 128 weights, 64 bytes hold two rows of 32 in their low and two in their high nibbles.
    """
    low = blocks[:, :128].reshape(-1, 2, 1, 64) >> np.array([0, 4], np.uint8)[:, None] & 15
    quants = (low.reshape(-1, 16, 16) | _two_bits(blocks[:, 128:192]) << 4).astype(np.int8) - np.int8(32)
    scales = half(blocks, 208) * blocks[:, 192:208].view(np.int8)
    weights: np.ndarray = scales[..., None] * quants
    return weights.reshape(-1, _WEIGHTS)


EXPANDED_TYPES: dict[str, Callable[[np.ndarray], np.ndarray]] = {"Q2_K": _q2_k, "Q3_K": _q3_k, "Q6_K": _q6_k}
