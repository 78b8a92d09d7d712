"""Owns the sampler ``default``: which rows are sampled together, and by which form. Knows no model and no backend."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import frozen

from lattice_samplers import batch_form, plain_form
from lattice_samplers.candidates import best_candidates, selection_size
from lattice_samplers.row_settings import resolve_settings
from lattice_samplers.row_state import RowGroup, RowState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lattice_core.descriptors import Settings
    from lattice_core.types import SamplingParams


@frozen
class _Kind:
    """What rows must have in common to be sampled by the same operations.

    ``candidates`` is how many tokens a row is drawn from, 0 for a greedy one; ``penalty`` is -1, 0 or 1 for one that raises,
    none, and one that lowers.
    """

    candidates: int
    penalty: int

    @classmethod
    def of(cls, state: RowState) -> _Kind:
        """The kind of one row; depends on nothing but the row."""
        settings = state.settings
        candidates = 0 if settings.greedy else selection_size(settings.top_k, state.vocab_size)
        return cls(candidates, (settings.penalty > 1) - (settings.penalty < 1))


class DefaultSampler:
    """Repetition penalty, temperature, top-k and top-p, then a draw with the ``u`` that the core gives.

    The penalty counts every token of the prompt and the output once and holds at temperature 0 too. Rows of one kind are
    sampled together; a row's kind and sums depend on the row alone, so its token does not depend on its neighbours.
    """

    def __init__(self, _settings: Settings | None = None) -> None: ...

    def new_state(self, params: SamplingParams, prompt: Sequence[int], vocab_size: int) -> RowState:
        """The state of one row after ``prompt``; raises ``RequestError`` for parameters or ids out of range."""
        return RowState.start(resolve_settings(params, prompt, vocab_size), prompt, vocab_size)

    def sample(self, logits: np.ndarray, state: RowState, u: float) -> int:
        """One token for float32 [vocabulary]; raises ``SamplerError`` when every logit is NaN or minus infinity."""
        token = plain_form.choose(logits, state.settings, state.take_to_host(), u)
        state.add(token)
        return token

    def sample_batch(self, logits: Any, states: Sequence[RowState], u: Sequence[float]) -> Any:
        """Int32 [rows] for float32 [rows, vocabulary], lazy where the arrays are; -1 where ``sample`` would raise."""
        xp = logits.__array_namespace__()
        rows_of: dict[_Kind, list[int]] = {}
        for row, state in enumerate(states):
            rows_of.setdefault(_Kind.of(state), []).append(row)
        # Infinite logits are legal; numpy would warn of them where MLX does not.
        with np.errstate(all="ignore"):
            sampled = [_sample_kind(xp, kind, logits, rows, states, u) for kind, rows in rows_of.items()]
            tokens = _in_order(xp, [part for part, _ in sampled], list(rows_of.values()))
            # Only now, when nothing can fail any more: who calls again after an error finds the states as they were.
            for part, group in sampled:
                if group is not None:
                    group.add(part)
        return tokens


def _sample_kind(
    xp: Any, kind: _Kind, logits: Any, rows: list[int], states: Sequence[RowState], u: Sequence[float]
) -> tuple[Any, RowGroup | None]:
    """Int32 [len(rows)] for the ``rows`` of a batch that are of one kind, and the group that must note them."""
    if len(rows) < len(states):
        logits = xp.take(logits, xp.array(rows, dtype=xp.int32), axis=0)
    if not kind.candidates and not kind.penalty:
        return batch_form.most_likely(xp, batch_form.without_nan(xp, logits)), None
    group = RowGroup.of(xp, [states[row] for row in rows])
    if kind.penalty:
        logits = batch_form.penalise(xp, logits, group.penalty, lowering=kind.penalty > 0)
    logits = batch_form.without_nan(xp, logits)
    if not kind.candidates:
        return batch_form.most_likely(xp, logits), group
    ids = best_candidates(xp, logits, kind.candidates)
    values = xp.take_along_axis(logits, ids, axis=-1)
    parameters = (group.inverse_temperature, group.top_k, group.top_p)
    draws = xp.array([u[row] for row in rows], dtype=xp.float32)[:, None]
    return batch_form.draw(xp, ids, values, parameters, draws), group


def _in_order(xp: Any, parts: list[Any], rows: list[list[int]]) -> Any:
    """The tokens of a batch in the order of its rows; ``rows`` says where those of each part stand."""
    if len(parts) == 1:
        return parts[0]
    order = [row for part in rows for row in part]
    places = sorted(range(len(order)), key=order.__getitem__)
    return xp.take(xp.concatenate(parts), xp.array(places, dtype=xp.int32), axis=0)
