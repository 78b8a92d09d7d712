"""Owns the sampler ``greedy``. Knows no model and no backend."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lattice_samplers import batch_form, plain_form

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from lattice_core.descriptors import Settings
    from lattice_core.types import SamplingParams


class GreedySampler:
    """The most likely token, equal ones by lower id, whatever the request's sampling parameters say."""

    def __init__(self, _settings: Settings | None = None) -> None: ...

    def new_state(self, params: SamplingParams, prompt: Sequence[int], vocab_size: int) -> None:
        """No state: each token depends on its logits alone."""

    def sample(self, logits: np.ndarray, _state: None, _u: float) -> int:
        """The first index of the greatest logit; raises ``SamplerError`` when every logit is NaN or minus infinity."""
        return plain_form.most_likely(logits)

    def sample_batch(self, logits: Any, _states: Sequence[None], _u: Sequence[float]) -> Any:
        """Int32 [rows] for float32 [rows, vocabulary], lazy where the array is; -1 where ``sample`` would raise."""
        xp = logits.__array_namespace__()
        return batch_form.most_likely(xp, batch_form.without_nan(xp, logits))
