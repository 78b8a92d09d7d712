"""Owns the plain form of sampling: one row, numpy, written to be read. It is the oracle of the batch form.

Sums of probabilities are float64 here and float32 in the batch form, so the two may part where a draw falls within float32
rounding of a boundary, and nowhere else. Knows nothing of states.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lattice_core.errors import SamplerError

if TYPE_CHECKING:
    from lattice_samplers.row_settings import RowSettings


def most_likely(logits: np.ndarray) -> int:
    """The first index of the greatest logit of float32 [vocabulary], NaN skipped.

    Raises ``SamplerError`` when every logit is NaN or minus infinity.
    """
    known = without_nan(logits)
    best = int(known.argmax())
    if known[best] == -np.inf:
        raise SamplerError(
            f"no token can be chosen: all {known.size} logits are masked or NaN; check the grammar and the model"
        )
    return best


def without_nan(logits: np.ndarray) -> np.ndarray:
    """A copy of logits with minus infinity where they were NaN."""
    return np.where(np.isnan(logits), np.float32(-np.inf), logits)


def penalise(logits: np.ndarray, penalty: np.ndarray) -> np.ndarray:
    """Float32 [vocabulary]: a positive logit divided by its token's ``penalty``, any other multiplied; 1.0 changes nothing.

    Source: Keskar et al. 2019, CTRL, section 4.1, with the sign rule that made it usable for logits of either sign.
    """
    result = logits.copy()
    at = np.flatnonzero(penalty != 1)
    chosen, factors = logits[at], penalty[at]
    with np.errstate(over="ignore"):
        result[at] = np.where(chosen > 0, chosen / factors, chosen * factors)
    return result


def choose(logits: np.ndarray, settings: RowSettings, penalty: np.ndarray | None, u: float) -> int:
    """One token for logits float32 [vocabulary], ``penalty`` float32 [vocabulary] or None, ``u`` uniform in [0, 1).

    The order: penalty; greedy rows take the most likely token; the ``top_k`` best, equal ones by lower id; softmax at the
    temperature; the smallest prefix that holds ``top_p``; the first token with ``u`` below its cumulative probability.
    A row whose best logit is infinite takes it. Raises ``SamplerError`` when nothing can be chosen.
    """
    if penalty is not None:
        logits = penalise(logits, penalty)
    logits = without_nan(logits)
    best = most_likely(logits)
    if settings.greedy or np.isinf(logits[best]):
        return best
    ids = _best_ids(logits, settings.top_k)
    with np.errstate(over="ignore"):
        weights = np.exp((logits[ids].astype(np.float64) - float(logits[best])) / settings.temperature)
    cumulative = weights.cumsum()
    last = int(np.count_nonzero(cumulative < settings.top_p * cumulative[-1]))
    drawn = int(np.count_nonzero(cumulative <= u * cumulative[last]))
    return int(ids[drawn])


def _best_ids(logits: np.ndarray, count: int) -> np.ndarray:
    """The ids of the ``count`` greatest logits, greatest first, equal ones by lower id. No NaN."""
    size = logits.size
    threshold = np.partition(logits, size - count)[size - count]
    ids = np.flatnonzero(logits >= threshold)
    order = np.argsort(-logits[ids], kind="stable")
    return ids[order[:count]]
