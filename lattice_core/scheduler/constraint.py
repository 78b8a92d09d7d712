"""A grammar as the sampling loop sees it: masks over the model's whole vocabulary, end-of-sequence only where it is legal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lattice_core.errors import BlockedConstraintError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lattice_core.protocols import GrammarState


class Constraint:
    """One row's grammar. The mask is uint32 [ceil(vocab_size / 32)]; bits beyond the tokenizer's vocabulary are 0."""

    def __init__(self, state: GrammarState, tokenizer_size: int, vocab_size: int, eos_ids: Iterable[int]) -> None:
        self._state = state
        self._mask = np.zeros((vocab_size + 31) // 32, dtype=np.uint32)
        self._tail = np.full_like(self._mask, 0)
        known = min(tokenizer_size, vocab_size)
        self._tail[: known // 32] = 0xFFFFFFFF
        if known % 32:
            self._tail[known // 32] = (1 << (known % 32)) - 1
        self._eos = tuple(token for token in eos_ids if token < vocab_size)

    @property
    def finished(self) -> bool:
        """Whether the output is complete and nothing may follow."""
        return self._state.finished

    def mask(self) -> np.ndarray:
        """The tokens allowed next. Raises ``BlockedConstraintError`` when there is none."""
        self._mask[:] = 0
        self._state.fill_mask(self._mask)
        self._mask &= self._tail
        accepting = self._state.accepting
        for token in self._eos:
            bit = np.uint32(1 << (token % 32))
            if accepting:
                self._mask[token // 32] |= bit
            else:
                self._mask[token // 32] &= ~bit
        if not self._mask.any():
            raise BlockedConstraintError(
                "the grammar allows no token here; check the constraint: the model's vocabulary cannot continue it"
            )
        return self._mask

    def allows(self, token: int) -> bool:
        """Whether the last mask allowed ``token``."""
        return bool(self._mask[token // 32] >> np.uint32(token % 32) & np.uint32(1))

    def advance(self, token: int) -> None:
        """Consume a token that is part of the output."""
        self._state.advance(token)
