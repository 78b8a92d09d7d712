"""Owns where a row's penalties are kept: on the host, or as one row of a stacked array on the device.

Rows that are sampled together share a ``RowGroup``, which is built when the composition of the batch changes and reused
while it does not. Knows nothing of how tokens are chosen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import define, field

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lattice_samplers.row_settings import RowSettings


@define(eq=False)
class RowState:
    """One row between tokens. ``penalty`` float32 [vocabulary] stands here while the row is in no group; None: no penalty.

    A penalty is the row's own value at every token of the prompt and of the output, and 1.0 elsewhere.
    """

    settings: RowSettings
    vocab_size: int
    penalty: np.ndarray | None = None
    group: RowGroup | None = None
    index: int = 0

    @classmethod
    def start(cls, settings: RowSettings, prompt: Sequence[int], vocab_size: int) -> RowState:
        """The state after the prompt."""
        if settings.penalty == 1:
            return cls(settings, vocab_size)
        penalty = np.ones(vocab_size, np.float32)
        penalty[np.asarray(prompt, dtype=np.int64)] = settings.penalty
        return cls(settings, vocab_size, penalty)

    def take_to_host(self) -> np.ndarray | None:
        """The penalties as this row's own host array; waits for the device where they are there."""
        group, self.group = self.group, None
        if group is not None and group.penalty is not None:
            self.penalty = np.array(group.penalty[self.index])
        return self.penalty

    def add(self, token: int) -> None:
        """Note a token that was chosen on the host. The row must be there (``take_to_host``)."""
        if self.penalty is not None:
            self.penalty[token] = self.settings.penalty

    def stacked_on(self, xp: Any) -> Any:
        """The penalties as an array of namespace ``xp``."""
        group = self.group
        if group is not None and group.xp is xp:
            return group.penalty[self.index]
        return xp.array(self.take_to_host())


@define(eq=False)
class RowGroup:
    """Rows of one kind in one batch: their parameters, each [rows, 1], and penalties [rows, vocabulary] on the device."""

    xp: Any
    size: int
    inverse_temperature: Any
    top_k: Any
    top_p: Any
    own_penalty: Any
    ids: Any
    penalty: Any = field(default=None)

    @classmethod
    def of(cls, xp: Any, states: Sequence[RowState]) -> RowGroup:
        """The group of exactly these rows in this order: the one they are in already, else a new one."""
        group = states[0].group
        if group is None or group.xp is not xp or group.size != len(states):
            return cls._gather(xp, states)
        unchanged = all(state.group is group and state.index == index for index, state in enumerate(states))
        return group if unchanged else cls._gather(xp, states)

    @classmethod
    def _gather(cls, xp: Any, states: Sequence[RowState]) -> RowGroup:
        settings = [state.settings for state in states]

        def column(values: list[float], dtype: Any) -> Any:
            return xp.array(values, dtype=dtype)[:, None]

        penalised = settings[0].penalty != 1
        group = cls(
            xp=xp,
            size=len(states),
            inverse_temperature=column([0.0 if row.greedy else 1 / row.temperature for row in settings], xp.float32),
            top_k=column([row.top_k for row in settings], xp.int32),
            top_p=column([row.top_p for row in settings], xp.float32),
            own_penalty=column([row.penalty for row in settings], xp.float32),
            ids=xp.arange(states[0].vocab_size, dtype=xp.int32)[None],
            penalty=xp.stack([state.stacked_on(xp) for state in states]) if penalised else None,
        )
        for index, state in enumerate(states):
            state.group, state.index, state.penalty = group, index, None
        return group

    def add(self, tokens: Any) -> None:
        """Note the tokens [rows] that were chosen on the device, read or not; a constant amount of work per row."""
        if self.penalty is not None:
            self.penalty = self.xp.where(self.ids == tokens[:, None], self.own_penalty, self.penalty)
