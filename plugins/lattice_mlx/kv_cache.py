"""Where the state of every sequence stands. Owns the arrays and the batch slots; knows neither attention nor plans.

A sequence that is being prefilled has arrays of its own: one for each attention layer, [1, 2 * kv_heads, capacity, head_dim],
keys in the first half of the heads, values in the second; and, where the model has recurrent layers, their states, [1, ...],
whose size does not depend on the length. A sequence that decodes has a slot of a slab: the same arrays with [slots, ...]. Slabs
differ by capacity, so that short rows do not pay for long ones; slots in use are a dense prefix. Arrays are updated in place
where nothing else refers to them, and copied by MLX where something does.
"""

from __future__ import annotations

from math import prod

import mlx.core as mx
from attrs import define, field, frozen

SMALLEST_CAPACITY = 256


@frozen
class RecurrentArray:
    """One array of a recurrent layer's state, for one sequence."""

    shape: tuple[int, ...]
    dtype: mx.Dtype

    def zeros(self, slots: int) -> mx.array:
        """The state before the first token."""
        return mx.zeros((slots, *self.shape), self.dtype)

    @property
    def nbytes(self) -> int:
        """Bytes for one sequence."""
        return prod(self.shape) * self.dtype.size


@frozen
class CacheGeometry:
    """Layers with keys and values, key and value heads together, their width, dtype, tokens of context, recurrent arrays."""

    layers: int
    kv_rows: int
    head_dim: int
    dtype: mx.Dtype
    context: int
    recurrent: tuple[RecurrentArray, ...] = ()

    def capacity(self, length: int) -> int:
        """The capacity of the arrays that hold ``length`` tokens: powers of two from 256 on, and the context at most."""
        capacity = SMALLEST_CAPACITY
        while capacity < length:
            capacity *= 2
        return min(capacity, self.context)

    def zeros(self, slots: int, capacity: int) -> mx.array:
        """Empty keys and values of one layer."""
        return mx.zeros((slots, self.kv_rows, capacity, self.head_dim), self.dtype)

    @property
    def bytes_per_token(self) -> int:
        """Keys and values of one token in all layers."""
        return self.layers * self.kv_rows * self.head_dim * self.dtype.size

    @property
    def bytes_fixed(self) -> int:
        """The recurrent state of one sequence."""
        return sum(array.nbytes for array in self.recurrent)

    @property
    def can_roll_back(self) -> bool:
        """Whether the last tokens of a sequence can be forgotten: a recurrent state has mixed them in."""
        return not self.recurrent


@define(eq=False)
class Sequence:
    """One sequence: how many tokens it holds and where. Without tokens it has no arrays at all."""

    length: int = 0
    own: list[mx.array] = field(factory=list)
    recurrent: list[mx.array] = field(factory=list)
    slab: Slab | None = None
    slot: int = 0

    @property
    def capacity(self) -> int:
        """Tokens that its arrays can hold."""
        if self.slab is not None:
            return self.slab.capacity
        return self.own[0].shape[2] if self.own else 0


class Slab:
    """Arrays that several decoding sequences of like length share, one slot each."""

    def __init__(self, geometry: CacheGeometry, capacity: int) -> None:
        self._geometry = geometry
        self.capacity = capacity
        self.rows: list[Sequence] = []
        self.layers: list[mx.array] = []
        self.recurrent: list[mx.array] = []
        self.slots = 0

    def join(self, sequence: Sequence) -> None:
        """Take over the arrays of a sequence, of the slab's capacity. The whole slot is written: nothing stale stays in it."""
        slot = len(self.rows)
        if not self.slots:
            self.layers, self.recurrent, self.slots = sequence.own, sequence.recurrent, 1
        else:
            if slot == self.slots:
                self._resize(slot + max(1, slot // 2))
            self._write(slot, sequence.own, sequence.recurrent)
        sequence.own, sequence.recurrent, sequence.slab, sequence.slot = [], [], self, slot
        self.rows.append(sequence)

    def copy(self, slot: int, length: int, capacity: int) -> Sequence:
        """The first ``length`` tokens of a slot as a sequence with arrays of its own."""
        own = [_resized(layer[slot : slot + 1], length, self._geometry.zeros(1, capacity)) for layer in self.layers]
        return Sequence(length, own, [_copied(array, slot, slot + 1) for array in self.recurrent])

    def leave(self, sequence: Sequence) -> None:
        """Free a slot; the last one moves into it, so that slots in use stay a dense prefix."""
        last = self.rows.pop()
        if last is not sequence:
            moved = self.copy(last.slot, last.length, self.capacity)
            # Computed now: until then the copy refers to the slab, and writing would copy all of that.
            mx.eval(moved.own, moved.recurrent)
            self._write(sequence.slot, moved.own, moved.recurrent)
            last.slot = sequence.slot
            self.rows[last.slot] = last
        sequence.slab = None
        if not self.rows:
            self.layers, self.recurrent, self.slots = [], [], 0
        elif len(self.rows) <= self.slots // 2:
            self._resize(len(self.rows))

    def _write(self, slot: int, own: list[mx.array], recurrent: list[mx.array]) -> None:
        for array, part in zip([*self.layers, *self.recurrent], [*own, *recurrent], strict=True):
            array[slot : slot + 1] = part

    def _resize(self, slots: int) -> None:
        more = slots - self.slots
        if more > 0:
            self.layers = [mx.concatenate([layer, self._geometry.zeros(more, self.capacity)]) for layer in self.layers]
            empty = [array.zeros(more) for array in self._geometry.recurrent]
            self.recurrent = [mx.concatenate([held, new]) for held, new in zip(self.recurrent, empty, strict=True)]
        else:
            self.layers = [_copied(layer, 0, slots) for layer in self.layers]
            self.recurrent = [_copied(array, 0, slots) for array in self.recurrent]
        self.slots = slots


class KVCache:
    """The slabs of one model, and how sequences move between them and arrays of their own."""

    def __init__(self, geometry: CacheGeometry) -> None:
        self.geometry = geometry
        self._slabs: dict[int, Slab] = {}

    def to_slab(self, sequence: Sequence) -> Slab:
        """Put a sequence where it can decode one more token, and say where."""
        capacity = self.geometry.capacity(sequence.length + 1)
        if sequence.slab is not None and sequence.slab.capacity >= capacity:
            return sequence.slab
        self._make_own(sequence, capacity)
        slab = self._slabs.setdefault(capacity, Slab(self.geometry, capacity))
        slab.join(sequence)
        return slab

    def to_own(self, sequence: Sequence, more: int) -> Sequence:
        """Give a sequence arrays of its own with room for ``more`` tokens; returns it."""
        capacity = self.geometry.capacity(sequence.length + more)
        if sequence.slab is not None or sequence.capacity < capacity:
            self._make_own(sequence, capacity)
        return sequence

    def drop(self, sequence: Sequence) -> None:
        """Free what a sequence holds."""
        slab = sequence.slab
        if slab is not None:
            slab.leave(sequence)
            if not slab.rows:
                del self._slabs[slab.capacity]
        sequence.own, sequence.recurrent, sequence.length = [], [], 0

    def fork(self, sequence: Sequence) -> Sequence:
        """An independent copy; arrays of its own are shared until one of the two writes."""
        if sequence.slab is not None:
            return sequence.slab.copy(sequence.slot, sequence.length, sequence.capacity)
        # Reshaping to the same shape makes new objects on the same data: writing replaces what one object refers to.
        own, recurrent = ([mx.reshape(array, array.shape) for array in held] for held in (sequence.own, sequence.recurrent))
        return Sequence(sequence.length, own, recurrent)

    def clear(self) -> None:
        """Forget all slabs."""
        self._slabs.clear()

    def _make_own(self, sequence: Sequence, capacity: int) -> None:
        length, slab = sequence.length, sequence.slab
        if slab is not None:
            copy = slab.copy(sequence.slot, length, capacity)
            self.drop(sequence)
            sequence.length, sequence.own, sequence.recurrent = length, copy.own, copy.recurrent
        elif sequence.capacity != capacity:
            source: list[mx.array] | list[None] = sequence.own or [None] * self.geometry.layers
            sequence.own = [_resized(layer, length, self.geometry.zeros(1, capacity)) for layer in source]
            sequence.recurrent = sequence.recurrent or [array.zeros(1) for array in self.geometry.recurrent]


def _resized(source: mx.array | None, length: int, target: mx.array) -> mx.array:
    """``target`` with the first ``length`` tokens of ``source`` written over its own."""
    if source is not None and length:
        target[:, :, :length] = source[:, :, :length]
    return target


def _copied(array: mx.array, start: int, stop: int) -> mx.array:
    """Some slots in an array of their own: a mere view would keep all of them alive."""
    return array[start:stop] + 0
