"""Sampling of one forward pass. A fault of a sampler or a grammar ends its row only.

Rows without a grammar are sampled on the device at once, unread, when the sampler can. The others wait until their token is
needed on the host.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import frozen

from lattice_core.errors import GenerationError, LatticeError, SamplerError
from lattice_core.protocols import BatchSampler

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lattice_core.protocols import Model, Sampler
    from lattice_core.scheduler.row import Row

PLUGIN_FAULTS = (Exception, SystemExit)
"""What a plugin may raise without ending the engine."""


@frozen(eq=False)
class Sampled:
    """Rows and the device array of their tokens, in the same order."""

    rows: tuple[Row, ...]
    tokens: Any


@frozen(eq=False)
class Deferred:
    """Rows whose tokens are chosen later, and their logits [rows, vocabulary]."""

    rows: tuple[Row, ...]
    logits: Any


def row_error(error: BaseException, part: str) -> LatticeError:
    """The error of one row: Lattice's own pass, anything else becomes one that names the part and the cause."""
    if isinstance(error, LatticeError):
        return error
    kind = SamplerError if part == "sampler" else GenerationError
    return kind(f"the {part} failed", detail=f"{type(error).__name__}: {error}")


class TokenSampling:
    """Applies one sampler to the rows of a forward pass."""

    def __init__(self, model: Model, sampler: Sampler) -> None:
        self._model = model
        self._sampler = sampler
        self._batch = sampler if isinstance(sampler, BatchSampler) else None

    def begin(self, rows: Sequence[Row], logits: Any) -> tuple[list[Sampled], Deferred | None]:
        """Sample what can be sampled without reading; ``logits`` has one row for each of ``rows``."""
        if self._batch is None:
            return [], Deferred(tuple(rows), logits)
        now = [index for index, row in enumerate(rows) if row.constraint is None]
        later = [index for index, row in enumerate(rows) if row.constraint is not None]
        groups = self._on_device([rows[i] for i in now], _take(logits, now, len(rows))) if now else []
        deferred = Deferred(tuple(rows[i] for i in later), _take(logits, later, len(rows))) if later else None
        return groups, deferred

    def complete(self, deferred: Deferred) -> list[tuple[Row, int]]:
        """Choose the tokens of rows that waited: masks through the model, then the sampler, then read."""
        rows: list[Row] = []
        masks: list[np.ndarray] = []
        keep: list[int] = []
        for index, row in enumerate(deferred.rows):
            if row.ended:
                continue
            if row.constraint is not None:
                try:
                    masks.append(row.constraint.mask().copy())
                except PLUGIN_FAULTS as error:
                    row.fail(row_error(error, "grammar"))
                    continue
            rows.append(row)
            keep.append(index)
        if not rows:
            return []
        logits = _take(deferred.logits, keep, len(deferred.rows))
        if masks:
            logits = self._model.apply_mask(logits, _all_masks(rows, masks, logits.shape[-1]))
        if self._batch is None:
            return self._on_host(rows, self._model.read_logits(logits))
        return [
            pair
            for group in self._on_device(rows, logits)
            for pair in zip(group.rows, self._model.read(group.tokens), strict=True)
        ]

    def _on_device(self, rows: list[Row], logits: Any) -> list[Sampled]:
        try:
            return [Sampled(tuple(rows), self._sample_batch(rows, logits))]
        except PLUGIN_FAULTS as error:
            if len(rows) == 1:
                rows[0].fail(row_error(error, "sampler"))
                return []
        # One of several rows is at fault: alone, each shows whether it is the one.
        return [group for i, row in enumerate(rows) for group in self._on_device([row], logits[i : i + 1])]

    def _sample_batch(self, rows: list[Row], logits: Any) -> Any:
        if self._batch is None:
            raise SamplerError("the sampler cannot sample on the device")
        tokens = self._batch.sample_batch(logits, [row.sampler_state for row in rows], [row.draw() for row in rows])
        if tuple(tokens.shape) != (len(rows),):
            raise SamplerError(f"the sampler returned shape {tuple(tokens.shape)} for {len(rows)} rows")
        return tokens

    def _on_host(self, rows: list[Row], logits: np.ndarray) -> list[tuple[Row, int]]:
        logits.flags.writeable = False
        chosen = []
        for row, values in zip(rows, logits, strict=True):
            try:
                chosen.append((row, int(self._sampler.sample(values, row.sampler_state, row.draw()))))
            except PLUGIN_FAULTS as error:
                row.fail(row_error(error, "sampler"))
        return chosen


def _take(logits: Any, indices: list[int], count: int) -> Any:
    """Rows of a device array; the array itself when all of its rows are wanted."""
    if len(indices) == count:
        return logits
    xp = logits.__array_namespace__()
    return xp.take(logits, xp.asarray(indices), axis=0)


def _all_masks(rows: Sequence[Row], masks: list[np.ndarray], vocab_size: int) -> np.ndarray:
    """Masks of all rows: uint32 [rows, ceil(vocab_size / 32)]; all ones for a row without a grammar."""
    packed = np.full((len(rows), (vocab_size + 31) // 32), 0xFFFFFFFF, dtype=np.uint32)
    constrained = (index for index, row in enumerate(rows) if row.constraint is not None)
    for index, mask in zip(constrained, masks, strict=True):
        packed[index] = mask
    return packed
