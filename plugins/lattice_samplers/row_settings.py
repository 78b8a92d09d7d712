"""Owns what a row's sampling parameters mean: which are refused, which are off, which make the row greedy.

Knows nothing of arrays on a device and of logits.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from attrs import frozen

from lattice_core.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lattice_core.types import SamplingParams

_SMALLEST, _GREATEST = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)

COLDEST = 1e4 / _GREATEST
"""Below this temperature (about 2.94e-35) logits divided by it leave float32, so the row is greedy."""


@frozen
class RowSettings:
    """One row's parameters, checked and resolved for a vocabulary.

    ``top_k`` is between 1 and the vocabulary. ``penalty`` is a float32 value, 1.0 is off. A greedy row takes the most
    likely token after the penalty and needs no draw.
    """

    temperature: float
    top_k: int
    top_p: float
    penalty: float
    greedy: bool


def resolve_settings(params: SamplingParams, prompt: Sequence[int], vocab_size: int) -> RowSettings:
    """Check ``params`` and ``prompt`` and resolve them. Raises ``RequestError`` naming the parameter, its value and limit."""
    temperature, top_k, top_p, penalty = params.temperature, params.top_k, params.top_p, params.repetition_penalty
    if not (math.isfinite(temperature) and temperature >= 0):
        raise RequestError(f"temperature {temperature} must be finite and at least 0 (0 is greedy)", param="temperature")
    if not 0 < top_p <= 1:
        raise RequestError(f"top_p {top_p} must be greater than 0 and at most 1 (1 is off)", param="top_p")
    if top_k < 0:
        raise RequestError(f"top_k {top_k} must be at least 0 (0 is off)", param="top_k")
    if not _SMALLEST <= penalty <= _GREATEST:
        raise RequestError(
            f"repetition_penalty {penalty} must be greater than 0 and finite in float32 (1 is off)", param="repetition_penalty"
        )
    if prompt and not (min(prompt) >= 0 and max(prompt) < vocab_size):
        wrong = next(token for token in prompt if not 0 <= token < vocab_size)
        raise RequestError(f"prompt token {wrong} is outside the vocabulary 0..{vocab_size - 1}", param="prompt")
    return RowSettings(
        temperature=temperature,
        top_k=top_k if 0 < top_k < vocab_size else vocab_size,
        top_p=top_p,
        penalty=float(np.float32(penalty)),
        greedy=temperature < COLDEST or top_k == 1,
    )
