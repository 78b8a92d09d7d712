"""From logits to negative log likelihoods, and their running mean. Knows arrays of numpy, no model."""

from __future__ import annotations

import math

import numpy as np
from attrs import define

_ROWS = 8
"""Rows that are widened to float64 at the same time: 16 MB at a vocabulary of 250,000."""


def negative_log_likelihoods(logits: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """``-log softmax(logits)[target]`` of each row in nats.

    ``logits`` float32 [rows, vocabulary], ``targets`` integers [rows]; the result is float64 [rows], not a number where a
    row's logits are not finite. The largest logit is subtracted first, so that nothing overflows.
    """
    result = np.empty(len(logits), np.float64)
    for start in range(0, len(logits), _ROWS):
        rows = logits[start : start + _ROWS].astype(np.float64)
        chosen = rows[np.arange(len(rows)), targets[start : start + _ROWS]]
        top = rows.max(axis=1)
        rows -= top[:, None]
        np.exp(rows, out=rows)
        result[start : start + _ROWS] = np.log(rows.sum(axis=1)) - (chosen - top)
    return result


@define
class RunningMean:
    """Count, mean and sum of squared deviations of values that arrive in blocks.

    Merged as in Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances", 1979.
    """

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0

    def add(self, values: np.ndarray) -> None:
        """Take in float64 [n]."""
        added = len(values)
        if not added:
            return
        mean = float(values.mean())
        total = self.count + added
        apart = mean - self.mean
        self.squares += float(((values - mean) ** 2).sum()) + apart * apart * self.count * added / total
        self.mean += apart * added / total
        self.count = total

    @property
    def standard_error(self) -> float | None:
        """Of the mean, the values taken as independent; None for fewer than two."""
        return math.sqrt(self.squares / (self.count - 1) / self.count) if self.count > 1 else None


def perplexity(mean: float) -> float:
    """``exp`` of the mean negative log likelihood; infinite where that is beyond a float."""
    try:
        return math.exp(mean)
    except OverflowError:
        return math.inf
