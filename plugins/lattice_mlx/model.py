"""The loaded model as the engine sees it: states by id, ragged forward passes, masks, reads. Implements ``protocols.Model``.

Owns the table of states and when their lengths advance. Knows no architecture beyond ``network.Network``. All of it is
called on the thread that loaded it: MLX's streams belong to threads.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

import mlx.core as mx
import numpy as np
from attrs import frozen

from lattice_core.types import Pending, StateId
from lattice_mlx.heap import trim
from lattice_mlx.kv_cache import KVCache, Sequence
from lattice_mlx.step import plan_step
from lattice_mlx.token_mask import masked

if TYPE_CHECKING:
    from collections.abc import Sequence as Items

    from lattice_core.protocols import AdapterCheckpoint
    from lattice_core.types import AdapterId, ModelInfo, RowInput
    from lattice_mlx.adapters import AdapterBank
    from lattice_mlx.kv_cache import CacheGeometry
    from lattice_mlx.network import Network
    from lattice_mlx.step import Step


@frozen(eq=False)
class Logits:
    """float32 [rows, vocabulary], one row for each wanted position in the plan's order; lazy."""

    array: mx.array


class MlxModel:
    """One model on one device."""

    def __init__(self, network: Network, info: ModelInfo, geometry: CacheGeometry, bank: AdapterBank) -> None:
        self._network: Network | None = network
        self._info = info
        self._bank = bank
        self._cache = KVCache(geometry)
        self._sequences: dict[StateId, Sequence] = {}
        self._ids = count()
        self._touched: list[list[mx.array]] = []

    @property
    def info(self) -> ModelInfo:
        """What the model says of itself."""
        return self._info

    # ------------------------------------------------------------------------------------ states

    def new_state(self) -> StateId:
        """An empty state."""
        return self._add(Sequence())

    def fork(self, states: Items[StateId]) -> list[StateId]:
        """Independent copies of states."""
        return [self._add(self._cache.fork(sequence)) for sequence in [self._sequences[state] for state in states]]

    def release(self, states: Items[StateId]) -> None:
        """Free states; ``KeyError`` for an unknown id, with nothing freed."""
        sequences = [self._sequences[state] for state in states]
        for state, sequence in zip(states, sequences, strict=True):
            self._cache.drop(sequence)
            del self._sequences[state]
        if not self._sequences:
            self._touched = []
            mx.clear_cache()
            trim()

    def rollback(self, states: Items[StateId], keep: Items[int]) -> bool:
        """Forget all but the first ``keep`` tokens of each state.

        False, with nothing done, where tokens are to go that a recurrent state has mixed in. Raises ``ValueError`` where a
        state holds fewer tokens than it is to keep, with nothing done.
        """
        pairs = [(self._sequences[state], kept) for state, kept in zip(states, keep, strict=True)]
        for sequence, kept in pairs:
            if not 0 <= kept <= sequence.length:
                raise ValueError(f"a state of {sequence.length} tokens cannot keep {kept}")
        if not self._cache.geometry.can_roll_back and any(kept != sequence.length for sequence, kept in pairs):
            return False
        for sequence, kept in pairs:
            sequence.length = kept
        return True

    def live_states(self) -> int:
        """How many states exist."""
        return len(self._sequences)

    def reset(self) -> None:
        """Drop all states and whatever a failed step left behind."""
        self._sequences.clear()
        self._cache.clear()
        self._touched = []
        mx.clear_cache()

    def close(self) -> None:
        """Free states and weights."""
        self.reset()
        self._bank.clear()
        self._network = None
        mx.clear_cache()

    # ------------------------------------------------------------------------------------ adapters

    def load_adapter(self, adapter: AdapterCheckpoint) -> AdapterId:
        """Make an adapter resident; ``ModelError`` names the module that does not fit."""
        return self._bank.load(adapter)

    def adapter_bytes(self, adapter: AdapterId) -> int:
        """Bytes that a resident adapter takes."""
        return self._bank.nbytes(adapter)

    def unload_adapter(self, adapter: AdapterId) -> None:
        """Free an adapter."""
        self._bank.unload(adapter)

    # ------------------------------------------------------------------------------------ steps

    def forward(self, plan: Items[RowInput]) -> Logits:
        """One ragged step, lazy. Raises ``KeyError`` or ``ValueError`` for an impossible plan, with nothing done."""
        if self._network is None:
            raise RuntimeError("the model is closed")
        self._check(plan)
        step = plan_step(plan, self._sequences, self._cache, self._bank)
        hidden = self._network.hidden(step)
        self._touched = [segment.arrays for segment in step.segments]
        for row in plan:
            self._sequences[row.state].length += row.count
        if step.wanted == []:
            return Logits(self._no_logits(step))
        rows = hidden if step.wanted is None else hidden[mx.array(step.wanted)]
        return Logits(self._network.logits(rows))

    def launch(self, arrays: Items[mx.array]) -> None:
        """Begin computing ``arrays`` and the caches of the last step."""
        caches = [array for held in self._touched for array in held]
        mx.async_eval(*arrays, *caches)  # type: ignore[no-untyped-call]  # the stub of MLX has no types here

    def wait(self, arrays: Items[mx.array]) -> None:
        """Wait until ``arrays`` are computed; the logits of a step depend on all caches it wrote, save the last layer's."""
        mx.eval(list(arrays))

    def read(self, tokens: mx.array) -> list[int]:
        """The sampled tokens as integers."""
        return [int(token) for token in np.array(tokens).reshape(-1)]

    def read_logits(self, logits: mx.array) -> np.ndarray:
        """Logits [rows, vocabulary] as float32 in host memory, a copy."""
        return np.array(logits.astype(mx.float32))

    def apply_mask(self, logits: mx.array, packed: np.ndarray) -> mx.array:
        """Logits with minus infinity where a bit of ``packed`` uint32 [rows, ceil(vocabulary / 32)] is 0."""
        return masked(logits, packed)

    # ------------------------------------------------------------------------------------ inside

    def _add(self, sequence: Sequence) -> StateId:
        state = StateId(next(self._ids))
        self._sequences[state] = sequence
        return state

    def _check(self, plan: Items[RowInput]) -> None:
        if not plan:
            raise ValueError("a plan needs at least one row")
        if len({row.state for row in plan}) != len(plan):
            raise ValueError("a state stands in the plan twice")
        for row in plan:
            length = self._sequences[row.state].length + row.count
            if length > self._info.context:
                raise ValueError(f"state {row.state} would hold {length} tokens, the context is {self._info.context}")
            self._bank.check(row.adapter)
            if row.count == 0:
                raise ValueError(f"state {row.state} is given no token")
            if not isinstance(row.tokens, Pending) and not (min(row.tokens) >= 0 and max(row.tokens) < self._info.vocab_size):
                wrong = next(token for token in row.tokens if not 0 <= token < self._info.vocab_size)
                raise ValueError(f"token {wrong} is outside the vocabulary of {self._info.vocab_size}")

    def _no_logits(self, step: Step) -> mx.array:
        """No rows, but an array that is computed no sooner than the caches, so that it can be waited for."""
        empty = mx.zeros((0, self._info.vocab_size), mx.float32)
        dependent: list[mx.array] = mx.depends([empty], [array for segment in step.segments for array in segment.arrays])
        return dependent[0]
