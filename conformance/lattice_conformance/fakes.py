"""Owns small samplers and grammars, right ones for the harness and wrong ones with one sin each. Knows no model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lattice_core.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lattice_core.descriptors import Settings
    from lattice_core.protocols import Vocabulary
    from lattice_core.types import SamplingParams


class GreedySampler:
    """The most likely token, for a row or for a whole batch."""

    def __init__(self, _settings: Settings | None = None) -> None: ...

    def new_state(self, params: SamplingParams, prompt: Sequence[int], vocab_size: int) -> None:
        """No state."""

    def sample(self, logits: np.ndarray, _state: None, _u: float) -> int:
        """The first index of the greatest logit."""
        return int(logits.argmax())

    def sample_batch(self, logits: Any, _states: Sequence[None], _u: Sequence[float]) -> Any:
        """The first index of the greatest logit of each row."""
        return logits.__array_namespace__().argmax(logits, axis=-1)


class HostGreedySampler:
    """The most likely token, one row at a time on the host: a sampler without the batch form."""

    def __init__(self, _settings: Settings | None = None) -> None: ...

    def new_state(self, params: SamplingParams, prompt: Sequence[int], vocab_size: int) -> None:
        """No state."""

    def sample(self, logits: np.ndarray, _state: None, _u: float) -> int:
        """The first index of the greatest logit."""
        return int(logits.argmax())


class SamplerFailureError(Exception):
    """What ``RaisingSampler`` raises: not an error of Lattice's own tree, as a plugin's bug would not be."""


class RaisingSampler:
    """Raises at each row's call number ``at`` (from 0); greedy before."""

    def __init__(self, settings: Settings | None = None, *, at: int = 2) -> None:
        self._at = at if settings is None else settings.own.get("at", at)

    def new_state(self, *_request: object) -> list[int]:
        """A counter of the row's calls."""
        return [0]

    def sample(self, logits: np.ndarray, state: list[int], _u: float) -> int:
        """The first index of the greatest logit; raises ``SamplerFailureError`` when its turn has come."""
        call = state[0]
        state[0] += 1
        if call == self._at:
            raise SamplerFailureError(f"scripted failure of the sampler at call {call}")
        return int(logits.argmax())


class MaskIgnoringSampler:
    """Chooses a masked token where there is one; greedy where there is none."""

    def __init__(self, _settings: Settings | None = None) -> None: ...

    def new_state(self, params: SamplingParams, prompt: Sequence[int], vocab_size: int) -> None:
        """No state."""

    def sample(self, logits: np.ndarray, _state: None, _u: float) -> int:
        """The first token with a logit of minus infinity, else the first index of the greatest logit."""
        masked = np.isneginf(logits)
        return int(masked.argmax() if masked.any() else logits.argmax())


class _MaskState:
    """A grammar that allows the same tokens for ever."""

    def __init__(self, allowed: Sequence[int]) -> None:
        self._allowed = np.asarray(sorted(allowed), dtype=np.int64)

    def fill_mask(self, out: np.ndarray) -> None:
        """Write the allowed tokens into ``out``: uint32 [ceil(vocabulary / 32)]."""
        out[:] = 0
        np.bitwise_or.at(out, self._allowed // 32, np.left_shift(np.uint32(1), (self._allowed % 32).astype(np.uint32)))

    def advance(self, token: int) -> None:
        """Nothing changes."""

    def fork(self) -> _MaskState:
        """Itself: nothing changes."""
        return self

    @property
    def accepting(self) -> bool:
        """Whether there is anything to allow: a grammar that blocks everything has not accepted the empty text."""
        return bool(self._allowed.size)

    @property
    def finished(self) -> bool:
        """False."""
        return False


class BlockingGrammar:
    """Allows no token at all."""

    def __init__(self, _settings: Settings | None = None) -> None: ...

    def compile(self, _spec: Any, _vocabulary: Vocabulary) -> _MaskState:
        """A state whose masks are all zeros."""
        return _MaskState(())


class AlphabetGrammar:
    """Allows the bytes of the characters in the specification, and the end of the sequence."""

    def __init__(self, _settings: Settings | None = None) -> None: ...

    def compile(self, spec: Any, vocabulary: Vocabulary) -> _MaskState:
        """A state for ``spec``, a string of ASCII characters; raises ``RequestError`` for anything else."""
        if not isinstance(spec, str) or not spec.isascii():
            raise RequestError(
                f"the grammar scripted-alphabet takes a string of ASCII characters, not {spec!r}", param="grammar"
            )
        characters = (vocabulary.token_id(character) for character in spec if character != " ")
        # Byte-level vocabularies write the blank as U+0120.
        blank = (vocabulary.token_id("\u0120"),) if " " in spec else ()
        return _MaskState([token for token in (*characters, *blank, *vocabulary.eos_ids) if token is not None])
