"""Where keys and values of every sequence stand. Owns the arrays and the batch slots; knows neither attention nor plans.

A sequence that is being prefilled has arrays of its own, one for each layer: [1, 2 * kv_heads, capacity, head_dim], keys in the
first half of the heads, values in the second. A sequence that decodes has a slot of a slab: [slots, 2 * kv_heads, capacity,
head_dim]. Slabs differ by capacity, so that short rows do not pay for long ones; slots in use are a dense prefix. Arrays are
updated in place where nothing else refers to them, and copied by MLX where something does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlx.core as mx
from attrs import define, field, frozen

if TYPE_CHECKING:
    from collections.abc import Iterable

SMALLEST_CAPACITY = 256


@frozen
class CacheGeometry:
    """Layers with a cache, key and value heads together, their width, dtype, and tokens of context."""

    layers: int
    kv_rows: int
    head_dim: int
    dtype: mx.Dtype
    context: int

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


@define(eq=False)
class Sequence:
    """One sequence: how many tokens it holds and where. Without tokens it has no arrays at all."""

    length: int = 0
    own: list[mx.array] = field(factory=list)
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

    @property
    def slots(self) -> int:
        """Slots that the arrays have."""
        return self.layers[0].shape[0] if self.layers else 0

    def join(self, sequence: Sequence) -> None:
        """Take over the arrays of a sequence, of the slab's capacity. The whole slot is written: nothing stale stays in it."""
        slot = len(self.rows)
        if not self.layers:
            self.layers = sequence.own
        else:
            if slot == self.slots:
                self._resize(slot + max(1, slot // 2))
            for layer, own in zip(self.layers, sequence.own, strict=True):
                layer[slot : slot + 1] = own
        sequence.own, sequence.slab, sequence.slot = [], self, slot
        self.rows.append(sequence)

    def copy(self, slot: int, length: int, capacity: int) -> list[mx.array]:
        """The first ``length`` tokens of a slot in arrays of their own."""
        return [_resized(layer[slot : slot + 1], length, self._geometry.zeros(1, capacity)) for layer in self.layers]

    def leave(self, sequence: Sequence) -> None:
        """Free a slot; the last one moves into it, so that slots in use stay a dense prefix."""
        last = self.rows.pop()
        if last is not sequence:
            moved = self.copy(last.slot, last.length, self.capacity)
            # Computed now: until then the copy refers to the slab, and writing would copy all of that.
            mx.eval(moved)
            for layer, own in zip(self.layers, moved, strict=True):
                layer[sequence.slot : sequence.slot + 1] = own
            last.slot = sequence.slot
            self.rows[last.slot] = last
        sequence.slab = None
        if not self.rows:
            self.layers = []
        elif len(self.rows) <= self.slots // 2:
            self._resize(len(self.rows))

    def _resize(self, slots: int) -> None:
        more = slots - self.slots
        for index, layer in enumerate(self.layers):
            if more > 0:
                self.layers[index] = mx.concatenate([layer, self._geometry.zeros(more, self.capacity)])
            else:
                # A copy: a mere view would keep the whole slab alive.
                self.layers[index] = layer[:slots] + 0


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

    def to_own(self, sequence: Sequence, more: int) -> list[mx.array]:
        """Give a sequence arrays of its own with room for ``more`` tokens."""
        capacity = self.geometry.capacity(sequence.length + more)
        if sequence.slab is not None or sequence.capacity < capacity:
            self._make_own(sequence, capacity)
        return sequence.own

    def drop(self, sequence: Sequence) -> None:
        """Free what a sequence holds."""
        slab = sequence.slab
        if slab is not None:
            slab.leave(sequence)
            if not slab.rows:
                del self._slabs[slab.capacity]
        sequence.own, sequence.length = [], 0

    def fork(self, sequence: Sequence) -> Sequence:
        """An independent copy; arrays of its own are shared until one of the two writes."""
        if sequence.slab is not None:
            own = sequence.slab.copy(sequence.slot, sequence.length, sequence.capacity)
        else:
            # Reshaping to the same shape makes new objects on the same data: writing replaces what one object refers to.
            own = [mx.reshape(layer, layer.shape) for layer in sequence.own]
        return Sequence(sequence.length, own)

    def clear(self) -> None:
        """Forget all slabs."""
        self._slabs.clear()

    def _make_own(self, sequence: Sequence, capacity: int) -> None:
        length, slab = sequence.length, sequence.slab
        if slab is not None:
            own = slab.copy(sequence.slot, length, capacity)
            self.drop(sequence)
            sequence.length, sequence.own = length, own
        elif sequence.capacity != capacity:
            source: list[mx.array] | list[None] = sequence.own or [None] * self.geometry.layers
            sequence.own = [_resized(layer, length, self.geometry.zeros(1, capacity)) for layer in source]


def _resized(source: mx.array | None, length: int, target: mx.array) -> mx.array:
    """``target`` with the first ``length`` tokens of ``source`` written over its own."""
    if source is not None and length:
        target[:, :, :length] = source[:, :, :length]
    return target


def arrays_of(sequences: Iterable[Sequence]) -> list[mx.array]:
    """Everything that the sequences hold, each array once."""
    found: dict[int, list[mx.array]] = {}
    for sequence in sequences:
        layers = sequence.slab.layers if sequence.slab is not None else sequence.own
        if layers:
            found[id(layers)] = layers
    return [array for layers in found.values() for array in layers]
