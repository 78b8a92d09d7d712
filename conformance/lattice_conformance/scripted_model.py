"""Owns the scripted model: states that remember their tokens, and logits that follow the prompt's script.

Implements ``lattice_core.protocols.Model`` with numpy. Eager: a forward has done its work when it returns, so a gated or
delayed forward holds up the device thread, as a slow device would. Knows nothing of engines, samplers and frontends.
"""

from __future__ import annotations

import time
from threading import Event
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import define, field

from lattice_conformance.forward_log import ForwardLog, RowRecord
from lattice_conformance.script import Script, read_script
from lattice_core.types import Pending, StateId, Want

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lattice_conformance.gate import TokenGate
    from lattice_core.types import ModelInfo, RowInput

REPLY_LOGIT = 100.0
_HANG_SECONDS = 3600.0


class ScriptedFailureError(Exception):
    """What a scripted failure raises: not an error of Lattice's own tree, as a device's would not be."""


@define
class _State:
    tokens: list[int] = field(factory=list)
    prompt_length: int | None = None
    script: Script | None = None


@define
class ScriptedLogits:
    """Logits float32 [rows, vocabulary], not writable: who samples must not change them."""

    array: np.ndarray


class ScriptedModel:
    """A deterministic model. The first forward of a state that wants logits ends its prompt; the script then decides.

    Logits of reply position k are 100.0 at the script's token k and small distinct values elsewhere, best at ``a``, so that
    masks and penalties find something to choose. ``log`` tells what was asked of the model.
    """

    def __init__(self, info: ModelInfo, *, max_batch: int, fail_steps: bool = False, gate: TokenGate | None = None) -> None:
        self._info = info
        self._max_batch = max_batch
        self._fail_steps = fail_steps
        self._gate = gate
        self._states: dict[StateId, _State] = {}
        self._next_id = 0
        self._released = Event()
        self.log = ForwardLog()
        runner_up = (np.arange(info.vocab_size) - ord("a")) % info.vocab_size
        self._background = (-runner_up / 1024).astype(np.float32)

    @property
    def info(self) -> ModelInfo:
        """What the model says of itself."""
        return self._info

    def new_state(self) -> StateId:
        """An empty state."""
        return self._add(_State())

    def fork(self, states: Sequence[StateId]) -> list[StateId]:
        """Independent copies of states."""
        originals = [self._states[state] for state in states]
        return [self._add(_State(list(s.tokens), s.prompt_length, s.script)) for s in originals]

    def release(self, states: Sequence[StateId]) -> None:
        """Free states; ``KeyError`` for an unknown id."""
        for state in states:
            del self._states[state]

    def rollback(self, states: Sequence[StateId], keep: Sequence[int]) -> bool:
        """Forget all but the first ``keep`` tokens of each state; always exact, so always True.

        Raises ``ValueError`` when a state holds fewer tokens than it should keep.
        """
        for state, count in zip(states, keep, strict=True):
            held = len(self._states[state].tokens)
            if not 0 <= count <= held:
                raise ValueError(f"state {state} holds {held} tokens and cannot keep {count}")
        for state, count in zip(states, keep, strict=True):
            row = self._states[state]
            del row.tokens[count:]
            if row.prompt_length is not None and count < row.prompt_length:
                row.prompt_length = row.script = None
        return True

    def live_states(self) -> int:
        """How many states exist."""
        return len(self._states)

    def tokens_of(self, state: StateId) -> tuple[int, ...]:
        """The tokens that ``state`` holds now."""
        return tuple(self._states[state].tokens)

    def forward(self, plan: Sequence[RowInput]) -> ScriptedLogits:
        """One ragged step. Raises ``ValueError`` for a plan that breaks the contract, ``ScriptedFailureError`` by script."""
        tokens = self._check(plan)
        rows = [self._states[row.state] for row in plan]
        decoding = [row.prompt_length is not None for row in rows]
        self.log.add_forward(
            [
                RowRecord(row.state, ids, row.want, decode, row.adapter)
                for row, ids, decode in zip(plan, tokens, decoding, strict=True)
            ]
        )
        if self._fail_steps:
            msg = "scripted failure of every step"
            raise ScriptedFailureError(msg)
        logits: list[np.ndarray] = []
        for row, state, ids, decode in zip(plan, rows, tokens, decoding, strict=True):
            if decode and self._gate is not None:
                self._gate.take()
            state.tokens += ids
            if state.prompt_length is None and row.want is not Want.NONE:
                state.prompt_length = len(state.tokens)
            self._act(row.state, decode=decode)
            if row.want is Want.LAST:
                logits.append(self._logits(state, len(state.tokens)))
            elif row.want is Want.ALL:
                first = len(state.tokens) - len(ids) + 1
                logits += [self._logits(state, consumed) for consumed in range(first, first + len(ids))]
        array = np.stack(logits) if logits else np.empty((0, self._info.vocab_size), np.float32)
        array.flags.writeable = False
        return ScriptedLogits(array)

    def launch(self, arrays: Sequence[Any]) -> None:
        """Nothing to begin: the work is done."""

    def wait(self, arrays: Sequence[Any]) -> None:
        """Nothing to wait for: the work is done."""

    def read(self, tokens: Any) -> list[int]:
        """The sampled tokens as integers."""
        return [int(token) for token in np.asarray(tokens).reshape(-1)]

    def read_logits(self, logits: Any) -> np.ndarray:
        """A copy of logits as float32 [rows, vocabulary]."""
        return np.array(logits, dtype=np.float32)

    def apply_mask(self, logits: Any, packed: np.ndarray) -> np.ndarray:
        """Logits with minus infinity where a bit of ``packed`` is 0. Raises ``ValueError`` for masks of another shape."""
        rows, vocabulary = logits.shape
        expected = (rows, -(-vocabulary // 32))
        if packed.shape != expected or packed.dtype != np.uint32:
            raise ValueError(f"masks are {packed.dtype} {packed.shape}, expected uint32 {expected}")
        octets = np.ascontiguousarray(packed, dtype="<u4").view(np.uint8)
        allowed = np.unpackbits(octets, axis=1, count=vocabulary, bitorder="little")
        return np.where(allowed, logits, np.float32(-np.inf))

    def reset(self) -> None:
        """Drop all states."""
        self._states.clear()

    def close(self) -> None:
        """Drop all states."""
        self._states.clear()

    def release_hang(self) -> None:
        """Let forwards that ``[[hang]]`` blocks go on, from any thread; later ones do not block."""
        self._released.set()

    def _add(self, state: _State) -> StateId:
        name = StateId(self._next_id)
        self._next_id += 1
        self._states[name] = state
        self.log.add_state()
        return name

    def _check(self, plan: Sequence[RowInput]) -> list[tuple[int, ...]]:
        """The tokens of each row, read from the device where they are pending."""
        if len(plan) > self._max_batch:
            raise ValueError(f"a plan of {len(plan)} rows exceeds the batch of {self._max_batch}")
        if len({row.state for row in plan}) != len(plan):
            msg = "a state stands in the plan twice"
            raise ValueError(msg)
        result = []
        for row in plan:
            # A pending token is not checked, as a device cannot: a sampler's mistake is found when the token is read.
            if isinstance(row.tokens, Pending):
                ids: tuple[int, ...] = (int(row.tokens.tokens[row.tokens.index]),)
            else:
                ids = row.tokens
                if not ids or not all(0 <= token < self._info.vocab_size for token in ids):
                    raise ValueError(f"state {row.state} is fed no token or one outside 0..{self._info.vocab_size - 1}")
            length = len(self._states[row.state].tokens) + len(ids)
            if length > self._info.context:
                raise ValueError(f"state {row.state} grows to {length} tokens beyond the context of {self._info.context}")
            result.append(ids)
        return result

    def _script_of(self, state: StateId) -> Script:
        """What the tokens of ``state`` ask for, as far as they have come."""
        return read_script(self._states[state].tokens, self._info.context)

    def _act(self, name: StateId, *, decode: bool) -> None:
        """Do to one row what its script says of this forward: wait, hang or raise."""
        state = self._states[name]
        script = state.script
        if script is None:
            script = self._script_of(name)
            if state.prompt_length is not None:
                state.script = script
        time.sleep(script.decode_delay if decode else script.prefill_delay)
        if state.prompt_length is None:
            return
        if script.hang and not decode:
            self._released.wait(_HANG_SECONDS)
        position = len(state.tokens) - state.prompt_length
        if script.fail_at == position:
            raise ScriptedFailureError(f"scripted failure at reply token {position}")

    def _logits(self, state: _State, consumed: int) -> np.ndarray:
        """Logits [vocabulary] after the first ``consumed`` tokens; inside the prompt they favour the token that follows."""
        if state.script is None or state.prompt_length is None:
            msg = "logits are wanted of a prompt that has not ended"
            raise ValueError(msg)
        logits = self._background.copy()
        inside = consumed < state.prompt_length
        favourite = state.tokens[consumed] if inside else state.script.token(consumed - state.prompt_length)
        logits[favourite] = REPLY_LOGIT
        return logits
