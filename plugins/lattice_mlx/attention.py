"""Attention with grouped queries (Ainslie et al., 2023, arXiv:2305.13245) over given keys and values.

Two shapes of the same formula, ``softmax(q k^T * head_dim^-0.5) v``: one query for each of many rows (decode), and many
queries of one row (prefill). Knows no caches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlx.core as mx

from lattice_mlx.activation import softmax

if TYPE_CHECKING:
    from collections.abc import Callable

_SCORES_AT_ONCE = 1 << 20
_SMALLEST_BLOCK, _LARGEST_BLOCK = 32, 128


def visible(positions: mx.array, length: int) -> mx.array:
    """Which of ``length`` columns the tokens at int32 ``positions`` [rows] may see: bool [rows, length]."""
    return mx.arange(length) <= positions[:, None]


class PlainAttention:
    """By matrix products and a softmax: the fast way on the CPU, and what the fused kernel is checked against."""

    def __init__(self, softmax: Callable[[mx.array], mx.array] = softmax) -> None:
        self._softmax = softmax

    def decode(self, q: mx.array, k: mx.array, v: mx.array, seen: mx.array | None) -> mx.array:
        """One query for each row: q [rows, heads, d], k and v [rows, kv_heads, length, d] -> [rows, heads, d].

        ``seen`` bool [rows, length] says what each row may look at; None: everything.
        """
        rows, heads, d = q.shape
        kv_heads = k.shape[1]
        grouped = (q * d**-0.5).reshape(rows, kv_heads, heads // kv_heads, d)
        scores = grouped @ k.swapaxes(-1, -2)
        if seen is not None:
            scores = mx.where(seen[:, None, None], scores, -mx.inf)
        return (self._softmax(scores) @ v).reshape(rows, heads, d)

    def causal(self, q: mx.array, k: mx.array, v: mx.array) -> mx.array:
        """Many queries of one row: q [tokens, heads, d], k and v [kv_heads, length, d] -> [tokens, heads, d].

        The last query sees all ``length`` columns, each one before it one less. Blocks of queries skip what none of them
        sees, and keep the scores in the processor's cache.
        """
        tokens, heads, d = q.shape
        kv_heads, length, _ = k.shape
        grouped = (q * d**-0.5).reshape(tokens, kv_heads, heads // kv_heads, d).transpose(1, 2, 0, 3)
        block = min(_LARGEST_BLOCK, max(_SMALLEST_BLOCK, _SCORES_AT_ONCE // (heads * length)))
        parts = []
        for start in range(0, tokens, block):
            stop = min(start + block, tokens)
            end = length - tokens + stop
            scores = grouped[:, :, start:stop] @ k[:, None, :end].swapaxes(-1, -2)
            positions = mx.arange(length - tokens + start, end)
            scores = mx.where(visible(positions, end), scores, -mx.inf)
            parts.append(self._softmax(scores) @ v[:, None, :end])
        mixed = parts[0] if len(parts) == 1 else mx.concatenate(parts, axis=2)
        return mixed.transpose(2, 0, 1, 3).reshape(tokens, heads, d)


class FusedAttention:
    """The same by MLX's kernel, whose softmax is float32 whatever the inputs are."""

    def decode(self, q: mx.array, k: mx.array, v: mx.array, seen: mx.array | None) -> mx.array:
        """As ``PlainAttention.decode``."""
        mask = None if seen is None else seen[:, None, None]
        mixed = mx.fast.scaled_dot_product_attention(q[:, :, None], k, v, scale=q.shape[-1] ** -0.5, mask=mask)
        return mixed[:, :, 0]

    def causal(self, q: mx.array, k: mx.array, v: mx.array) -> mx.array:
        """As ``PlainAttention.causal``."""
        mixed = mx.fast.scaled_dot_product_attention(
            q.swapaxes(0, 1)[None], k[None], v[None], scale=q.shape[-1] ** -0.5, mask="causal"
        )
        return mixed[0].swapaxes(0, 1)


Attention = PlainAttention | FusedAttention
