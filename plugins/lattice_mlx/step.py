"""Packs a ragged plan into one array of tokens. Owns their order and where each wanted position stands in it.

Tokens of all rows stand one after another, so that norms, projections and feed-forward layers see one matrix; attention
and recurrence go segment by segment. A slot of a slab whose row is not in the plan computes a token that nobody reads, at the
place that the row writes next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlx.core as mx
from attrs import frozen

from lattice_core.types import Pending, Want
from lattice_mlx.segments import ChunkSegment, DecodeSegment

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Sequence as Items

    from lattice_core.types import AdapterId, RowInput, StateId
    from lattice_mlx.adapters import AdapterBank, StepAdapters
    from lattice_mlx.attention import Attention
    from lattice_mlx.kv_cache import KVCache, Sequence, Slab
    from lattice_mlx.segments import Recurrence, Segment

_IDLE = 0
"""The token of a slot whose row is not in the plan."""


@frozen(eq=False)
class Step:
    """A planned forward pass over T packed tokens. ``tokens`` and ``positions`` are int32 [T].

    ``wanted`` are places of the packed tokens whose logits are wanted, in the plan's order; None stands for all of them.
    ``adapters`` is what adapters add to projections, None where no row has one.
    """

    tokens: mx.array
    positions: mx.array
    segments: tuple[Segment, ...]
    wanted: list[int] | None
    adapters: StepAdapters | None = None

    def attend(self, attention: Attention, layer: int, q: mx.array, kv: mx.array) -> mx.array:
        """Shapes: q [T, heads, d], kv [T, 2 * kv_heads, d] -> [T, heads, d]. Writes the caches."""
        if len(self.segments) == 1:
            return self.segments[0].attend(attention, layer, q, kv)
        parts = []
        for segment in self.segments:
            place = slice(segment.start, segment.start + segment.count)
            parts.append(segment.attend(attention, layer, q[place], kv[place]))
        return mx.concatenate(parts)

    def recur(self, recurrence: Recurrence, places: slice, inputs: tuple[mx.array, ...]) -> mx.array:
        """Tokens [T, ...] through the recurrent arrays at ``places`` of every sequence -> outputs [T, ...]."""
        if len(self.segments) == 1:
            return self.segments[0].recur(recurrence, places, inputs)
        parts = []
        for segment in self.segments:
            place = slice(segment.start, segment.start + segment.count)
            parts.append(segment.recur(recurrence, places, tuple(array[place] for array in inputs)))
        return mx.concatenate(parts)


def plan_step(
    plan: Items[RowInput], sequences: Mapping[StateId, Sequence], cache: KVCache, bank: AdapterBank | None = None
) -> Step:
    """Bring every row's cache to where the step needs it and pack the tokens. Lengths do not advance yet."""
    # Chunks first: a row that leaves its slab changes the slots of others.
    for row in plan:
        if row.count > 1:
            cache.to_own(sequences[row.state], row.count)
    singles = {id(sequences[row.state]): row for row in plan if row.count == 1}
    slabs = _decoding_slabs([sequences[row.state] for row in singles.values()], cache)
    packed: list[int | Pending] = []
    positions: list[int] = []
    segments: list[Segment] = []
    place: dict[StateId, int] = {}
    adapters: list[AdapterId | None] = []
    for slab in slabs:
        idle = [slot for slot, sequence in enumerate(slab.rows) if id(sequence) not in singles]
        decode = DecodeSegment(slab, len(packed), idle)
        segments.append(decode)
        positions += decode.lengths
        for sequence in slab.rows:
            planned = singles.get(id(sequence))
            adapters.append(None if planned is None else planned.adapter)
            if planned is None:
                packed.append(_IDLE)
            else:
                place[planned.state] = len(packed)
                packed.append(planned.tokens if isinstance(planned.tokens, Pending) else planned.tokens[0])
    for row in plan:
        if isinstance(row.tokens, Pending) or row.count == 1:
            continue
        sequence = sequences[row.state]
        segments.append(ChunkSegment(sequence, len(packed), row.count))
        adapters += [row.adapter] * row.count
        place[row.state] = len(packed)
        positions += range(sequence.length, sequence.length + row.count)
        packed += row.tokens
    adapted = None if bank is None else bank.for_tokens(adapters)
    return Step(_tokens(packed), mx.array(positions), tuple(segments), _wanted(plan, place, len(packed)), adapted)


def _decoding_slabs(sequences: list[Sequence], cache: KVCache) -> list[Slab]:
    """The slabs of sequences that decode one token, all with room for it in every slot in use."""
    # All rows move first: a row that moves up leaves a hole, which another one fills.
    for sequence in sequences:
        cache.to_slab(sequence)
    planned = set(map(id, sequences))
    slabs = {id(slab): slab for sequence in sequences if (slab := sequence.slab) is not None}
    for slab in slabs.values():
        # A row that fills its slot and does not take part has no place for the idle token.
        for row in [row for row in slab.rows if row.length >= slab.capacity and id(row) not in planned]:
            cache.to_own(row, 0)
    return sorted(slabs.values(), key=lambda slab: slab.capacity)


def _wanted(plan: Items[RowInput], place: Mapping[StateId, int], total: int) -> list[int] | None:
    wanted: list[int] = []
    for row in plan:
        first = place[row.state]
        if row.want is Want.LAST:
            wanted.append(first + row.count - 1)
        elif row.want is Want.ALL:
            wanted += range(first, first + row.count)
    return None if wanted == list(range(total)) else wanted


def _tokens(packed: list[int | Pending]) -> mx.array:
    """int32 [T] of known tokens and of tokens that stand in arrays on the device."""
    arrays: dict[int, mx.array] = {}
    for item in packed:
        if isinstance(item, Pending):
            arrays[id(item.tokens)] = item.tokens
    if not arrays:
        return mx.array(packed)
    known = [item for item in packed if isinstance(item, int)]
    pool = [mx.array(known, mx.int32)] if known else []
    starts: dict[int, int] = {}
    total = len(known)
    for key, array in arrays.items():
        starts[key] = total
        total += array.size
        pool.append(array.astype(mx.int32))
    nth = iter(range(len(known)))
    index = [starts[id(item.tokens)] + item.index if isinstance(item, Pending) else next(nth) for item in packed]
    whole = pool[0] if len(pool) == 1 else mx.concatenate(pool)
    return whole if index == list(range(total)) else whole[mx.array(index)]
