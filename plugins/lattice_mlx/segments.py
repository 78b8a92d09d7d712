"""The parts of a packed step, and how each attends: rows of a slab that decode one token together, or a chunk of one row.

Each writes the new keys and values into its cache, then attends to it. Knows neither weights nor how a step was planned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlx.core as mx

from lattice_mlx.attention import visible

if TYPE_CHECKING:
    from lattice_mlx.attention import Attention
    from lattice_mlx.kv_cache import Sequence, Slab


class DecodeSegment:
    """All slots in use of one slab, one token each, at ``[start, start + count)`` of the packed tokens.

    Attends over the longest length present; a row sees its own length of it.
    """

    def __init__(self, slab: Slab, start: int) -> None:
        self._slab = slab
        self.start = start
        self.lengths = [row.length for row in slab.rows]
        self.count = len(self.lengths)
        self._longest = max(self.lengths) + 1
        self._together = len(set(self.lengths)) == 1
        if not self._together:
            positions = mx.array(self.lengths)
            self._seen = visible(positions, self._longest)
            heads = slab.layers[0].shape[1]
            self._where = (mx.arange(self.count)[:, None], mx.arange(heads)[None], positions[:, None])

    @property
    def layers(self) -> list[mx.array]:
        """The caches that it writes."""
        return self._slab.layers

    def attend(self, attention: Attention, layer: int, q: mx.array, kv: mx.array) -> mx.array:
        """Shapes: q [count, heads, d], kv [count, 2 * kv_heads, d] -> [count, heads, d]."""
        cache, half = self._slab.layers[layer], kv.shape[1] // 2
        if self._together:
            cache[: self.count, :, self._longest - 1 : self._longest] = kv[:, :, None]
        else:
            cache[self._where] = kv
        held = cache[: self.count, :, : self._longest]
        return attention.decode(q, held[:, :half], held[:, half:], None if self._together else self._seen)


class ChunkSegment:
    """``count`` tokens of one sequence that has arrays of its own."""

    def __init__(self, sequence: Sequence, own: list[mx.array], start: int, count: int) -> None:
        self.layers = own
        self.start = start
        self.count = count
        self._offset = sequence.length

    def attend(self, attention: Attention, layer: int, q: mx.array, kv: mx.array) -> mx.array:
        """Shapes: q [count, heads, d], kv [count, 2 * kv_heads, d] -> [count, heads, d]."""
        cache, half, end = self.layers[layer], kv.shape[1] // 2, self._offset + self.count
        cache[0, :, self._offset : end] = kv.swapaxes(0, 1)
        held = cache[0, :, :end]
        return attention.causal(q, held[:half], held[half:])


Segment = DecodeSegment | ChunkSegment
