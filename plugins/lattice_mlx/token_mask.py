"""Masks of allowed tokens on logits. Knows no grammar."""

from __future__ import annotations

import mlx.core as mx
import numpy as np


def masked(logits: mx.array, packed: np.ndarray) -> mx.array:
    """Logits [rows, vocabulary] with minus infinity where a bit is 0.

    ``packed`` is uint32 [rows, ceil(vocabulary / 32)], bit 0 of word 0 is token 0. Raises ``ValueError`` for another shape.
    """
    rows, vocabulary = logits.shape
    expected = (rows, (vocabulary + 31) // 32)
    if packed.shape != expected or packed.dtype != np.uint32:
        raise ValueError(f"the mask is {packed.dtype} {list(packed.shape)}, expected uint32 {list(expected)}")
    octets = np.ascontiguousarray(packed, dtype="<u4").view(np.uint8)
    allowed = np.unpackbits(octets, axis=1, count=vocabulary, bitorder="little").view(np.bool_)
    return mx.where(mx.array(allowed), logits, -mx.inf)
