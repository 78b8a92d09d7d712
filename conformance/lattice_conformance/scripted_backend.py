"""Owns the backend ``scripted``: its settings, its built-in checkpoint and how it loads (or fails to).

Knows nothing of how replies are made (``scripted_model``, ``script``).
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lattice_conformance.gate import FifoGate, Gate, TokenGate
from lattice_conformance.scripted_adapter_model import ScriptedAdapterModel
from lattice_conformance.scripted_model import ScriptedModel
from lattice_conformance.scripted_tokenizer import CONTROL_TOKENS, END_OF_TEXT_ID, IM_END_ID, TOKENIZER_SIZE, tokenizer_json
from lattice_core.errors import ModelError
from lattice_core.types import ModelInfo, TensorData, TensorSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lattice_core.descriptors import Settings
    from lattice_core.protocols import Checkpoint
    from lattice_core.types import Limits

DEFAULT_CONTEXT = 4096
VOCAB_SIZE = -(-TOKENIZER_SIZE // 8) * 8
"""Wider than the tokenizer, as the padded output layers of real checkpoints are."""
STATE_BYTES_PER_TOKEN = 100


class ScriptedCheckpoint:
    """The checkpoint that the scripted backend brings along: a tokenizer and no tensor."""

    def __init__(self, context: int = DEFAULT_CONTEXT) -> None:
        self._context = context

    @property
    def config(self) -> Mapping[str, Any]:
        """The model's configuration."""
        return {
            "architectures": ["ScriptedForCausalLM"],
            "model_type": "scripted",
            "vocab_size": VOCAB_SIZE,
            "max_position_embeddings": self._context,
            "eos_token_id": [IM_END_ID, END_OF_TEXT_ID],
        }

    @property
    def generation_config(self) -> Mapping[str, Any]:
        """Nothing."""
        return {}

    @property
    def tokenizer_json(self) -> bytes:
        """One token per byte and three control tokens."""
        return tokenizer_json()

    @property
    def tokenizer_config(self) -> Mapping[str, Any]:
        """The name of the end-of-sequence token."""
        return {"eos_token": CONTROL_TOKENS[IM_END_ID]}

    @property
    def chat_template(self) -> str | None:
        """None: chats are rendered as bare ChatML."""
        return None

    @property
    def format(self) -> str:
        """The word ``scripted``."""
        return "scripted"

    @property
    def nbytes(self) -> int:
        """No bytes."""
        return 0

    def tensors(self) -> Mapping[str, TensorSpec]:
        """No tensors."""
        return {}

    def read(self, name: str) -> TensorData:
        """Raises ``ModelError``: there are no tensors."""
        raise ModelError(f"the scripted checkpoint has no tensor {name!r}")

    def close(self) -> None:
        """Nothing to give back."""


class ScriptedBackend:
    """Loads the scripted model. ``fail``: ``load`` refuses to load, ``steps`` makes every forward raise.

    ``adapters`` False is a model that cannot hold any.

    ``lookahead`` is what the model says of itself: False is the truth of an eager model and lets every token out before the
    next one meets the gate; True makes the engine launch the next step before it reads the last, as on a real device.
    ``model`` is the model loaded last, for tests to look into.
    """

    def __init__(
        self,
        *,
        context: int = DEFAULT_CONTEXT,
        fail: str | None = None,
        gate: TokenGate | None = None,
        load_delay: float = 0.0,
        lookahead: bool = False,
        adapters: bool = True,
    ) -> None:
        self.context = context
        self._fail = fail
        self._gate = gate
        self._load_delay = load_delay
        self._lookahead = lookahead
        self._kind = ScriptedAdapterModel if adapters else ScriptedModel
        self.model: ScriptedModel | None = None

    def load(self, checkpoint: Checkpoint, limits: Limits, progress: Callable[[int, int], None]) -> ScriptedModel:
        """The model; raises ``ModelError`` where the settings say so, or for a context beyond the model's."""
        progress(0, 1)
        time.sleep(self._load_delay)
        if self._fail == "load":
            msg = "the scripted backend was told to fail at load: leave --scripted-fail out"
            raise ModelError(msg)
        if limits.context is not None and limits.context > self.context:
            raise ModelError(
                f"context {limits.context} exceeds the model's {self.context}: lower --context or raise --scripted-context",
                param="context",
            )
        info = ModelInfo(
            architecture="ScriptedForCausalLM",
            vocab_size=VOCAB_SIZE,
            context=limits.context or self.context,
            eos_ids=frozenset(checkpoint.config["eos_token_id"]),
            device="script",
            dtype="float32",
            nbytes=0,
            state_bytes_per_token=STATE_BYTES_PER_TOKEN,
            fingerprint="scripted-1",
            lookahead=self._lookahead,
        )
        self.model = self._kind(info, max_batch=limits.max_batch, fail_steps=self._fail == "steps", gate=self._gate)
        progress(1, 1)
        return self.model

    def release(self) -> None:
        """Open an in-process gate and end hangs, from any thread, so that the device thread can come to rest."""
        if isinstance(self._gate, Gate):
            self._gate.open()
        if self.model is not None:
            self.model.release_hang()


def backend_from_settings(settings: Settings) -> ScriptedBackend:
    """The backend as the command line asks for it."""
    own = settings.own
    gate = own.get("gate")
    return ScriptedBackend(
        context=own.get("context") or DEFAULT_CONTEXT,
        fail=own.get("fail"),
        gate=None if gate is None else FifoGate(Path(gate)),
        load_delay=own.get("load-delay") or 0.0,
        adapters=own.get("adapters", True),
    )


def checkpoint_from_settings(settings: Settings) -> ScriptedCheckpoint:
    """The checkpoint as the command line asks for it."""
    return ScriptedCheckpoint(settings.own.get("context") or DEFAULT_CONTEXT)
