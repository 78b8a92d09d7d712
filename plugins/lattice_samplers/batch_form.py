"""Owns the batch form of sampling: many rows on the device in one lazy chain, equal to the plain form row by row.

Uses only functions that numpy and MLX share; ``xp`` is the namespace. No function of the host is called on a value, so
nothing waits. Where no token can be chosen the result is ``NOTHING``: who reads it fails the row, and an embedding that
is indexed with it meanwhile stays inside its table. Knows nothing of states.
"""

from __future__ import annotations

from typing import Any

NOTHING = -1

_SCAN = 4096


def without_nan(xp: Any, logits: Any) -> Any:
    """Logits with minus infinity where they were NaN."""
    return xp.where(xp.isnan(logits), -xp.inf, logits)


def penalise(xp: Any, logits: Any, penalty: Any, *, lowering: bool) -> Any:
    """Float32 [rows, vocabulary] as the plain form's ``penalise``; ``penalty`` is 1.0 where nothing changes.

    Of quotient and product the smaller one is what a penalty above 1 asks for whatever the sign (``lowering``), the greater
    one what a penalty below 1 asks for. This takes three passes where testing the sign takes five.
    """
    pick = xp.minimum if lowering else xp.maximum
    return pick(logits / penalty, logits * penalty)


def most_likely(xp: Any, logits: Any) -> Any:
    """Int32 [rows]: the first index of each row's greatest logit, ``NOTHING`` where all are minus infinity. No NaN."""
    best = xp.argmax(logits, axis=-1).astype(xp.int32)
    value = xp.take_along_axis(logits, best[:, None], axis=-1)[:, 0]
    # Cast again: numpy's where widens a plain number, and MLX's argmax is unsigned before the first cast.
    return xp.where(value == -xp.inf, NOTHING, best).astype(xp.int32)


def draw(xp: Any, ids: Any, values: Any, parameters: tuple[Any, Any, Any], u: Any) -> Any:
    """Int32 [rows]: one token of each row's candidates ``ids`` [rows, n] with logits ``values``, best first.

    ``parameters`` are 1/temperature float32, top_k int32 and top_p float32, each [rows, 1]; ``u`` float32 [rows, 1].
    """
    inverse, top_k, top_p = parameters
    count = ids.shape[-1]
    best = values[:, :1]
    # A row whose best logit is infinite is left as it is: all its sums are infinite, so its first candidate is drawn.
    weights = xp.exp((values - xp.where(xp.isfinite(best), best, 0.0)) * inverse)
    weights = xp.where(xp.arange(count, dtype=xp.int32)[None] < top_k, weights, 0.0)
    cumulative = _cumulative(xp, weights)
    last = _count(xp, cumulative < top_p * cumulative[:, -1:])
    drawn = _count(xp, cumulative <= u * xp.take_along_axis(cumulative, last, axis=-1))
    # A draw that float32 rounds up to 1 passes every sum: it means the last token that is kept.
    token = xp.take_along_axis(ids, xp.minimum(drawn, last), axis=-1)
    return xp.where(best == -xp.inf, NOTHING, token)[:, 0].astype(xp.int32)


def _count(xp: Any, condition: Any) -> Any:
    """Int32 [rows, 1]: how often ``condition`` holds in a row."""
    return xp.sum(condition.astype(xp.int32), axis=-1, keepdims=True).astype(xp.int32)


def _cumulative(xp: Any, weights: Any) -> Any:
    """Cumulative sums along rows. Long rows are summed in two levels, or float32 would lose a tail of many small weights."""
    rows, count = weights.shape
    if count <= _SCAN:
        return xp.cumsum(weights, axis=-1)
    missing = -count % 256
    if missing:
        weights = xp.concatenate([weights, xp.zeros((rows, missing), dtype=xp.float32)], axis=-1)
    within = xp.cumsum(xp.reshape(weights, (rows, -1, 256)), axis=-1)
    blocks = xp.cumsum(within[:, :, -1], axis=-1)
    before = xp.concatenate([xp.zeros((rows, 1), dtype=xp.float32), blocks[:, :-1]], axis=-1)
    return xp.reshape(within + before[:, :, None], (rows, -1))[:, :count]
