"""The parts of a packed step, and how each mixes tokens: rows of a slab that decode one token together, or a chunk of one row.

Each brings a layer's new keys and values, or its recurrent state, up to date in its cache. Knows neither weights nor how a step
was planned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import mlx.core as mx

from lattice_mlx.attention import visible

if TYPE_CHECKING:
    from lattice_mlx.attention import Attention
    from lattice_mlx.kv_cache import Sequence, Slab


class Recurrence(Protocol):
    """A layer that mixes tokens through a state of fixed size. ``inputs`` are arrays with one row for each token.

    ``states`` are the arrays that the layer keeps; both functions return the outputs and the states after the tokens.
    """

    def step(self, inputs: tuple[mx.array, ...], states: list[mx.array]) -> tuple[mx.array, list[mx.array]]:
        """One token for each of several rows; ``states`` are [rows, ...]."""
        ...

    def chunk(self, inputs: tuple[mx.array, ...], states: list[mx.array]) -> tuple[mx.array, list[mx.array]]:
        """Many tokens of one row; ``states`` are [1, ...]."""
        ...


class DecodeSegment:
    """All slots in use of one slab, one token each, at ``[start, start + count)`` of the packed tokens.

    Attends over the longest length present; a row sees its own length of it. ``idle`` are slots whose row is not in the plan.
    """

    def __init__(self, slab: Slab, start: int, idle: list[int]) -> None:
        self._slab = slab
        self.start = start
        self.lengths = [row.length for row in slab.rows]
        self.count = len(self.lengths)
        self._longest = max(self.lengths) + 1
        self._together = len(set(self.lengths)) == 1
        if not self._together:
            positions = mx.array(self.lengths)
            self._seen = visible(positions, self._longest)
            heads = slab.layers[0].shape[1] if slab.layers else 0
            self._where = (mx.arange(self.count)[:, None], mx.arange(heads)[None], positions[:, None])
        self._active = mx.array([slot not in idle for slot in range(self.count)]) if idle else None

    @property
    def arrays(self) -> list[mx.array]:
        """The caches that it writes."""
        return [*self._slab.layers, *self._slab.recurrent]

    def attend(self, attention: Attention, layer: int, q: mx.array, kv: mx.array) -> mx.array:
        """Shapes: q [count, heads, d], kv [count, 2 * kv_heads, d] -> [count, heads, d]."""
        cache, half = self._slab.layers[layer], kv.shape[1] // 2
        if self._together:
            cache[: self.count, :, self._longest - 1 : self._longest] = kv[:, :, None]
        else:
            cache[self._where] = kv
        held = cache[: self.count, :, : self._longest]
        return attention.decode(q, held[:, :half], held[:, half:], None if self._together else self._seen)

    def recur(self, recurrence: Recurrence, places: slice, inputs: tuple[mx.array, ...]) -> mx.array:
        """One token for each slot, through the recurrent arrays at ``places``; the states of idle slots stay as they are."""
        held = self._slab.recurrent[places]
        before = [array[: self.count] for array in held]
        outputs, after = recurrence.step(inputs, before)
        if self._active is not None:
            active = self._active
            after = [
                mx.where(active.reshape(-1, *[1] * (new.ndim - 1)), new, old) for new, old in zip(after, before, strict=True)
            ]
        for index, new in zip(range(places.start, places.stop), after, strict=True):
            if self.count == self._slab.slots:
                self._slab.recurrent[index] = new
            else:
                self._slab.recurrent[index][: self.count] = new
        return outputs


class ChunkSegment:
    """``count`` tokens of one sequence that has arrays of its own."""

    def __init__(self, sequence: Sequence, start: int, count: int) -> None:
        self._sequence = sequence
        self.start = start
        self.count = count
        self._offset = sequence.length

    @property
    def arrays(self) -> list[mx.array]:
        """The caches that it writes."""
        return [*self._sequence.own, *self._sequence.recurrent]

    def attend(self, attention: Attention, layer: int, q: mx.array, kv: mx.array) -> mx.array:
        """Shapes: q [count, heads, d], kv [count, 2 * kv_heads, d] -> [count, heads, d]."""
        cache, half, end = self._sequence.own[layer], kv.shape[1] // 2, self._offset + self.count
        cache[0, :, self._offset : end] = kv.swapaxes(0, 1)
        held = cache[0, :, :end]
        return attention.causal(q, held[:half], held[half:])

    def recur(self, recurrence: Recurrence, places: slice, inputs: tuple[mx.array, ...]) -> mx.array:
        """The chunk's tokens through the recurrent arrays at ``places``."""
        outputs, self._sequence.recurrent[places] = recurrence.chunk(inputs, self._sequence.recurrent[places])
        return outputs


class WholeSegment:
    """``count`` tokens of one sequence from its start, of which nothing is kept: for layers outside the model's caches."""

    start = 0

    def __init__(self, count: int) -> None:
        self.count = count

    @property
    def arrays(self) -> list[mx.array]:
        """It writes none."""
        return []

    def attend(self, attention: Attention, layer: int, q: mx.array, kv: mx.array) -> mx.array:
        """Shapes: q [count, heads, d], kv [count, 2 * kv_heads, d] -> [count, heads, d]."""
        del layer
        held, half = kv.swapaxes(0, 1), kv.shape[1] // 2
        return attention.causal(q, held[:half], held[half:])

    def recur(self, recurrence: Recurrence, places: slice, inputs: tuple[mx.array, ...]) -> mx.array:
        """A recurrent layer starts from a state, which this has not."""
        raise TypeError(f"{type(recurrence).__name__} needs a state at {places} for its {len(inputs)} inputs")


Segment = DecodeSegment | ChunkSegment | WholeSegment
