"""Owns the exact selection of a row's best tokens on the device: greatest logit first, equal ones by lower id.

Uses only functions that numpy and MLX share; ``xp`` is the namespace. Knows nothing of probabilities.

``partition`` and ``sort`` of neither library promise an order among equals, so both work on int64 keys without equals: the
float32 bits, mapped so that integers compare as the floats do, and below them the id counted from the end.
"""

from __future__ import annotations

from typing import Any

_BLOCK = {64: 64, 256: 32, 1024: 16}
"""Columns per block for each size of a selection; measured on vocabularies of 49,152 and 248,320."""


def selection_size(top_k: int, vocab_size: int) -> int:
    """How many candidates a row with this ``top_k`` is drawn from: a size of the table, or the whole vocabulary.

    A row's size depends on nothing but itself, so that its sums are the same in every batch.
    """
    return next((size for size in _BLOCK if top_k <= size < vocab_size), vocab_size)


def best_candidates(xp: Any, logits: Any, count: int) -> Any:
    """Ids int32 [rows, count] of the best logits of float32 [rows, vocabulary], best first. NaN must be gone."""
    vocab_size = logits.shape[-1]
    ids = xp.arange(vocab_size, dtype=xp.int32)[None]
    if count == vocab_size:
        return _ids_of(xp, xp.sort(_keys(xp, logits, ids), axis=-1)[:, ::-1])
    block = _BLOCK.get(count)
    if block is not None and vocab_size > 2 * block * count:
        logits, ids = _best_blocks(xp, logits, count, block)
    return _ids_of(xp, xp.sort(_greatest(xp, _keys(xp, logits, ids), count), axis=-1)[:, ::-1])


def _best_blocks(xp: Any, logits: Any, count: int, block: int) -> tuple[Any, Any]:
    """Logits and ids [rows, count * block] of the ``count`` blocks that hold the ``count`` best logits among them.

    Blocks are ranked by their greatest logit, equal ones by lower index: each block of a better rank holds at least one
    logit that ranks before everything in a later block, so nothing outside the first ``count`` is among the best.
    """
    rows, vocab_size = logits.shape
    missing = -vocab_size % block
    if missing:
        logits = xp.concatenate([logits, xp.full((rows, missing), -xp.inf, dtype=xp.float32)], axis=-1)
    blocks = xp.reshape(logits, (rows, -1, block))
    indices = xp.arange(blocks.shape[1], dtype=xp.int32)[None]
    chosen = _ids_of(xp, _greatest(xp, _keys(xp, xp.max(blocks, axis=-1), indices), count))[:, :, None]
    values = xp.take_along_axis(blocks, chosen, axis=1)
    ids = chosen * block + xp.arange(block, dtype=xp.int32)
    return xp.reshape(values, (rows, -1)), xp.reshape(ids, (rows, -1))


def _greatest(xp: Any, keys: Any, count: int) -> Any:
    """The ``count`` greatest keys of each row, in any order."""
    start = keys.shape[-1] - count
    return xp.partition(keys, start, axis=-1)[:, start:]


def _keys(xp: Any, values: Any, ids: Any) -> Any:
    """Int64 keys without equals: greater for a greater float32 value, and among equal values for a lower id."""
    # Adding zero turns -0.0 into 0.0, which compare as equal but differ in their bits.
    bits = (values + 0.0).view(xp.int32)
    ordered = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    return (ordered.astype(xp.int64) << 32) + (0x7FFFFFFF - ids).astype(xp.int64)


def _ids_of(xp: Any, keys: Any) -> Any:
    """The ids int32 that keys were made with."""
    return (0x7FFFFFFF - (keys & 0x7FFFFFFF)).astype(xp.int32)
