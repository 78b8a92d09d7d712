"""Runs windows of a text through a model and scores their tokens. Owns the sizes of steps; knows no tokenizer and no output.

Called on the thread that loaded the model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lattice_core.errors import GenerationError
from lattice_core.types import RowInput, Want
from lattice_eval.likelihood import negative_log_likelihoods

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence

    from lattice_core.protocols import Model
    from lattice_core.types import StateId
    from lattice_eval.windows import Window

_STEP = 512
"""Tokens of one forward pass at most."""
_LOGITS_BYTES = 128 * 1024 * 1024
"""Logits of one forward pass at most, in float32: 135 rows at a vocabulary of 248,320."""


def score(model: Model, tokens: Sequence[int], windows: Iterable[Window]) -> Generator[np.ndarray]:
    """Negative log likelihoods in nats of the scored tokens in order, as float64 [n] for each forward pass that gave some.

    Raises ``GenerationError`` where the model's logits are not finite. States are released whatever happens.
    """
    step = max(1, min(_STEP, _LOGITS_BYTES // (4 * model.info.vocab_size)))
    for window in windows:
        state = model.new_state()
        try:
            # The logits that score a token are those of the token before it; the last token is never fed.
            _feed(model, state, tokens[window.start : window.first_scored - 1])
            for start in range(window.first_scored - 1, window.stop - 1, step):
                stop = min(start + step, window.stop - 1)
                handle = model.forward([RowInput(state, tuple(tokens[start:stop]), Want.ALL)])
                values = negative_log_likelihoods(model.read_logits(handle.array), np.asarray(tokens[start + 1 : stop + 1]))
                _check(values, start + 1)
                yield values
        finally:
            model.release([state])


def _feed(model: Model, state: StateId, tokens: Sequence[int]) -> None:
    """Let the state consume ``tokens``; no logits are made."""
    for start in range(0, len(tokens), _STEP):
        handle = model.forward([RowInput(state, tuple(tokens[start : start + _STEP]), Want.NONE)])
        # Each step is waited for, so that the work of no more than one is held.
        model.launch([handle.array])
        model.wait([handle.array])


def _check(values: np.ndarray, first: int) -> None:
    finite = np.isfinite(values)
    if not finite.all():
        raise GenerationError(
            f"the model gives token {first + int(finite.argmin())} of the text no finite probability: its weights may be"
            " damaged (lattice pull --verify checks a pulled model), or the dtype too narrow (try --dtype float32)"
        )
