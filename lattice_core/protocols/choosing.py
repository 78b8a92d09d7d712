"""What chooses tokens and what constrains the choice: samplers and grammars."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from lattice_core.protocols.device import Array
    from lattice_core.protocols.text import Vocabulary
    from lattice_core.types import SamplingParams


class Sampler(Protocol):
    """Chooses the next token of a row. Masks are already applied; the core draws ``u``."""

    def new_state(self, params: SamplingParams, prompt: Sequence[int], vocab_size: int) -> Any:
        """The state of one row. Raises ``RequestError`` for parameters it cannot honour."""
        ...

    def sample(self, logits: np.ndarray, state: Any, u: float) -> int:
        """One token for one row: ``logits`` float32 [vocabulary] (not to be changed), ``u`` uniform in [0, 1)."""
        ...


@runtime_checkable
class BatchSampler(Protocol):
    """A sampler that also samples a whole batch on the device without a round trip to the host."""

    def new_state(self, params: SamplingParams, prompt: Sequence[int], vocab_size: int) -> Any:
        """As ``Sampler.new_state``."""
        ...

    def sample(self, logits: np.ndarray, state: Any, u: float) -> int:
        """As ``Sampler.sample``."""
        ...

    def sample_batch(self, logits: Array, states: Sequence[Any], u: Sequence[float]) -> Array:
        """Integer array [rows] from float32 [rows, vocabulary], using only what numpy and MLX share.

        ``logits.__array_namespace__()`` gives the functions. A row's token must not depend on the other rows. The result
        may be lazy; the states advance to it.
        """
        ...


class Grammar(Protocol):
    """Compiles constraints for one vocabulary."""

    def compile(self, spec: Any, vocabulary: Vocabulary) -> GrammarState:
        """A fresh state for ``spec``; raises ``RequestError`` naming what cannot be honoured. May run for long."""
        ...


class GrammarState(Protocol):
    """One row's position in a compiled grammar."""

    def fill_mask(self, out: np.ndarray) -> None:
        """Write the allowed tokens into ``out``: uint32 [ceil(vocabulary / 32)], bit 0 of word 0 is token 0."""
        ...

    def advance(self, token: int) -> None:
        """Consume a token that the mask allowed."""
        ...

    def fork(self) -> GrammarState:
        """An independent copy."""
        ...

    @property
    def accepting(self) -> bool:
        """Whether the output may end here."""
        ...

    @property
    def finished(self) -> bool:
        """Whether nothing may follow."""
        ...
