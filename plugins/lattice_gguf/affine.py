"""Block types whose weights are an affine function of small integers, repacked without loss.

Owns the mapping onto ``AffineQuantization`` (groups of 32). Sources: the block structures of ``ggml-common.h`` and their
arithmetic in ``ggml-quants.c`` (ggml project):

========  ====  ======  =======================================================================
type      bits  scales  weight
========  ====  ======  =======================================================================
Q4_0      4     F16     d * (q - 8)
Q4_1      4     F16     d * q + m
Q5_0      8     F16     d * (q - 16), q of 5 bits
Q5_1      8     F16     d * q + m, q of 5 bits
Q8_0      8     F16     d * (q - 128), q the stored signed byte + 128
Q4_K      4     F32     (d * s) * q - (dmin * t), s and t of 6 bits for each 32 weights
Q5_K      8     F32     the same with q of 5 bits
IQ4_NL    8     F16     d * (q - 128), q from a table of 16 values
IQ4_XS    8     F32     (d * (s - 32)) * (q - 128), s of 6 bits for each 32 weights
========  ====  ======  =======================================================================

A half-precision ``d`` times a power of two is exact in half precision unless it overflows; then the scales become F32.
``d * s`` needs up to 17 bits of mantissa and is therefore kept in F32.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from attrs import frozen

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

GROUP = 32
_CHUNK = 1 << 20
_HALF_MAX = 65504.0
_IQ4_TABLE = np.array([1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241], np.uint8)


@frozen
class AffineType:
    """How to read one block type.

    ``scales`` maps blocks [n, bytes] to scales and biases, float32 [n, groups]; ``quants`` to uint8 [n, groups, 32].
    ``scale_dtype`` holds them without loss unless a bias overflows.
    """

    bits: int
    scale_dtype: str
    scales: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
    quants: Callable[[np.ndarray], np.ndarray]


@frozen
class Packed:
    """Packed words as bytes, scales and biases of ``scale_dtype``; all C-contiguous."""

    words: np.ndarray
    scales: np.ndarray
    biases: np.ndarray
    scale_dtype: str


def pack(kind: AffineType, blocks: np.ndarray) -> Packed:
    """Repack blocks, uint8 [n, bytes of a block], in the order in which they lie in the tensor.

    Scales of a damaged file may come out infinite or not a number; the caller looks.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        scales, biases = kind.scales(blocks)
    scale_dtype = kind.scale_dtype
    if scale_dtype == "F16" and np.abs(biases).max(initial=0.0) > _HALF_MAX:
        scale_dtype = "F32"
    dtype = np.float16 if scale_dtype == "F16" else np.float32
    groups = scales.shape[1]
    words = np.empty((len(blocks), groups, GROUP * kind.bits // 8), np.uint8)
    step = max(1, _CHUNK // (groups * GROUP))
    for start in range(0, len(blocks), step):
        quants = kind.quants(blocks[start : start + step])
        words[start : start + step] = quants if kind.bits == 8 else quants[..., 0::2] | quants[..., 1::2] << 4  # noqa: PLR2004 - bits of a byte
    return Packed(words, scales.astype(dtype), biases.astype(dtype), scale_dtype)


def half(blocks: np.ndarray, offset: int) -> NDArray[np.float32]:
    """The half-precision number at a byte offset of each block, as float32 [n, 1]."""
    return np.ascontiguousarray(blocks[:, offset : offset + 2]).view("<f2").astype(np.float32)


def nibbles(octets: np.ndarray) -> np.ndarray:
    """Low nibbles of [..., k] bytes, then their high nibbles: uint8 [..., 2 * k]."""
    return np.concatenate([octets & 0x0F, octets >> 4], axis=-1)


def scales_and_minima(packed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The eight 6-bit scales and eight 6-bit minima in the 12 bytes of Q4_K and Q5_K: uint8 [n, 8] each.

    Bytes 0-3 hold scales 0-3 and bytes 4-7 minima 0-3 in their low six bits; their upper two bits are the upper bits of
    scales and minima 4-7, whose low nibbles are the low (scales) and high (minima) nibbles of bytes 8-11.
    """
    first, second, third = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    scales = np.concatenate([first & 63, (third & 15) | (first >> 6 << 4)], axis=1)
    minima = np.concatenate([second & 63, (third >> 4) | (second >> 6 << 4)], axis=1)
    return scales, minima


def _symmetric(zero: int) -> Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]:
    def scales(blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        scale = half(blocks, 0)
        return scale, scale * np.float32(-zero)

    return scales


def _with_minimum(blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return half(blocks, 0), half(blocks, 2)


def _k_scales(blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    scales, minima = scales_and_minima(blocks[:, 4:16])
    return half(blocks, 0) * scales, -(half(blocks, 2) * minima)


def _iq4_xs_scales(blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    upper = np.ascontiguousarray(blocks[:, 2:4]).view("<u2") >> np.arange(0, 16, 2, dtype=np.uint16) & 3
    lower = np.stack([blocks[:, 4:8] & 15, blocks[:, 4:8] >> 4], axis=-1).reshape(-1, 8)
    scale = half(blocks, 0) * ((lower | upper << 4).astype(np.float32) - np.float32(32))
    return scale, scale * np.float32(-128)


def _fifth_bit(blocks: np.ndarray, offset: int) -> np.ndarray:
    """The 32 bits at a byte offset, lowest first, as 0 or 16: uint8 [n, 32]."""
    bits = np.unpackbits(blocks[:, offset : offset + 4], axis=1, bitorder="little")
    sixteens: np.ndarray = bits << 4
    return sixteens


def _q5_quants(offset: int) -> Callable[[np.ndarray], np.ndarray]:
    def quants(blocks: np.ndarray) -> np.ndarray:
        found: np.ndarray = nibbles(blocks[:, offset + 4 :]) | _fifth_bit(blocks, offset)
        return found[:, None]

    return quants


def _q4_quants(offset: int) -> Callable[[np.ndarray], np.ndarray]:
    return lambda blocks: nibbles(blocks[:, offset:])[:, None]


def _q4_k_quants(blocks: np.ndarray, offset: int = 16) -> np.ndarray:
    # 32 bytes hold two groups: one in the low nibbles, the next in the high ones.
    return nibbles(blocks[:, offset:].reshape(-1, 4, 32)).reshape(-1, 8, 32)


def _q5_k_quants(blocks: np.ndarray) -> np.ndarray:
    # Bit g of byte i is the fifth bit of weight i of group g.
    fifth = blocks[:, None, 16:48] >> np.arange(8, dtype=np.uint8)[:, None] & 1
    quants: np.ndarray = _q4_k_quants(blocks, 48) | fifth << 4
    return quants


AFFINE_TYPES: dict[str, AffineType] = {
    "Q4_0": AffineType(4, "F16", _symmetric(8), _q4_quants(2)),
    "Q4_1": AffineType(4, "F16", _with_minimum, _q4_quants(4)),
    "Q5_0": AffineType(8, "F16", _symmetric(16), _q5_quants(2)),
    "Q5_1": AffineType(8, "F16", _with_minimum, _q5_quants(4)),
    "Q8_0": AffineType(8, "F16", _symmetric(128), lambda blocks: (blocks[:, 2:] ^ 128)[:, None]),
    "Q4_K": AffineType(4, "F32", _k_scales, _q4_k_quants),
    "Q5_K": AffineType(8, "F32", _k_scales, _q5_k_quants),
    "IQ4_NL": AffineType(8, "F16", _symmetric(128), lambda blocks: _IQ4_TABLE[nibbles(blocks[:, 2:])][:, None]),
    "IQ4_XS": AffineType(8, "F32", _iq4_xs_scales, lambda blocks: _IQ4_TABLE[nibbles(blocks[:, 8:].reshape(-1, 8, 16))]),
}
