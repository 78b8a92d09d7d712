"""The protocols of the parts that do the work. Factories make them; the engine calls them directly, never through hooks.

Threads: ``Loader.open``, ``ChatFormat.render``, ``Grammar.compile`` run on a pool. ``Backend``, ``Model``, ``Sampler`` and
grammar states run on the device thread of their model, where everything that touches the device is built.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    import numpy as np

    from lattice_core.errors import LatticeError
    from lattice_core.types import (
        AdapterId,
        AdapterInfo,
        EngineStats,
        Event,
        GenerationRequest,
        Health,
        Limits,
        LowRankUpdate,
        Message,
        ModelDescription,
        ModelInfo,
        Prompt,
        RowInput,
        SamplingParams,
        StateId,
        TensorData,
        TensorSpec,
    )

    Array = Any
    """An array of the backend's device that follows the subset of the array API that numpy and MLX share."""


class Checkpoint(Protocol):
    """An opened model: configuration, text assets and tensors by name. Bytes are read on demand (memory-mapped)."""

    @property
    def config(self) -> Mapping[str, Any]:
        """The model's configuration in Hugging Face notation (``architectures``, ``hidden_size``, ...)."""
        ...

    @property
    def generation_config(self) -> Mapping[str, Any]:
        """``generation_config.json``, or what stands for it; empty when there is none."""
        ...

    @property
    def tokenizer_json(self) -> bytes:
        """The tokenizer in the JSON format of the ``tokenizers`` library."""
        ...

    @property
    def tokenizer_config(self) -> Mapping[str, Any]:
        """``tokenizer_config.json``, or what stands for it (``eos_token``, ``bos_token``); may be empty."""
        ...

    @property
    def chat_template(self) -> str | None:
        """The Jinja chat template, if the checkpoint has one."""
        ...

    @property
    def format(self) -> str:
        """A short name of the storage format for logs, such as ``gguf Q4_1``."""
        ...

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors as stored."""
        ...

    def tensors(self) -> Mapping[str, TensorSpec]:
        """All tensors by name (``model.layers.0.self_attn.q_proj.weight``)."""
        ...

    def read(self, name: str) -> TensorData:
        """The bytes of one tensor. Raises ``ModelError`` when the file does not hold them."""
        ...

    def close(self) -> None:
        """Give the files back. Views handed out before stay valid."""
        ...


class Loader(Protocol):
    """Opens a storage format."""

    def open(self, path: Path) -> Checkpoint:
        """Open the model at ``path``; raises ``ModelError`` with one line that names the file and the cause."""
        ...


class AdapterCheckpoint(Protocol):
    """An opened adapter: low-rank updates by the module that they change. Knows no model."""

    @property
    def format(self) -> str:
        """A short name of the storage format for logs, such as ``PEFT`` or ``MLX``."""
        ...

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors as stored."""
        ...

    @property
    def fingerprint(self) -> str:
        """A digest of everything that decides the adapter's effect; part of every cache key."""
        ...

    def updates(self) -> Mapping[str, LowRankUpdate]:
        """By module, named below the decoder in Hugging Face notation: ``layers.0.self_attn.q_proj``, ``lm_head``."""
        ...

    def close(self) -> None:
        """Give the files back. Views handed out before stay valid."""
        ...


@runtime_checkable
class AdapterLoader(Protocol):
    """A loader that also opens adapters."""

    def open_adapter(self, path: Path) -> AdapterCheckpoint:
        """Open the adapter at ``path``; raises ``ModelError`` with one line that names the file, the tensor and the cause."""
        ...


class LogitsHandle(Protocol):
    """Logits of one forward pass, possibly not computed yet: one row for each wanted position, in the plan's order."""

    @property
    def array(self) -> Array:
        """Float32 array [rows, vocabulary] on the device."""
        ...


class Model(Protocol):
    """A loaded model. Owns arrays and batch slots; its callers see ids only. Called on one thread."""

    @property
    def info(self) -> ModelInfo:
        """What the model says of itself."""
        ...

    def new_state(self) -> StateId:
        """An empty state; costs nothing until tokens are fed."""
        ...

    def fork(self, states: Sequence[StateId]) -> list[StateId]:
        """Independent copies of states."""
        ...

    def release(self, states: Sequence[StateId]) -> None:
        """Free states. Releasing an unknown id is an error of the caller (``KeyError``)."""
        ...

    def rollback(self, states: Sequence[StateId], keep: Sequence[int]) -> bool:
        """Forget all but the first ``keep`` tokens of each state. False, with nothing done, where that is not exact."""
        ...

    def live_states(self) -> int:
        """How many states exist."""
        ...

    def forward(self, plan: Sequence[RowInput]) -> LogitsHandle:
        """One ragged step over rows of any length; lazy where the device is. A state may stand in a plan once."""
        ...

    def launch(self, arrays: Sequence[Array]) -> None:
        """Begin computing ``arrays`` (logits or sampled tokens) and the states behind them without waiting."""
        ...

    def wait(self, arrays: Sequence[Array]) -> None:
        """Wait until ``arrays`` and the states of the forward pass that made them are computed."""
        ...

    def read(self, tokens: Array) -> list[int]:
        """The sampled tokens as integers; waits for them."""
        ...

    def read_logits(self, logits: Array) -> np.ndarray:
        """Logits [rows, vocabulary] as float32 in host memory; waits for them."""
        ...

    def apply_mask(self, logits: Array, packed: np.ndarray) -> Array:
        """Logits with minus infinity where a bit is 0. ``packed``: uint32 [rows, ceil(vocabulary / 32)], bit 0 first."""
        ...

    def reset(self) -> None:
        """Drop all states and whatever a failed step left behind. The model must serve afterwards."""
        ...

    def close(self) -> None:
        """Free the weights."""
        ...


@runtime_checkable
class AdapterModel(Protocol):
    """A model that can hold adapters beside its weights; each row of a plan names the one that it uses.

    Adapters belong to no state: they outlive ``reset``.
    """

    def load_adapter(self, adapter: AdapterCheckpoint) -> AdapterId:
        """Make an adapter resident. Raises ``ModelError`` naming the tensor that does not fit, with nothing loaded."""
        ...

    def adapter_bytes(self, adapter: AdapterId) -> int:
        """Bytes that a resident adapter takes."""
        ...

    def unload_adapter(self, adapter: AdapterId) -> None:
        """Free an adapter. ``KeyError`` for an unknown one; no state may be fed with it afterwards."""
        ...


@runtime_checkable
class DescribingBackend(Protocol):
    """A backend that can say what a checkpoint would be without loading it."""

    def describe(self, checkpoint: Checkpoint, limits: Limits) -> ModelDescription:
        """Sizes and the accounting of tensors. Raises ``ModelError`` for a configuration that it cannot run."""
        ...


class Backend(Protocol):
    """Turns a checkpoint into a model on a device."""

    def load(self, checkpoint: Checkpoint, limits: Limits, progress: Callable[[int, int], None]) -> Model:
        """Load weights on the calling thread, which is the only one that will use the model.

        ``progress(done_bytes, total_bytes)`` is called as weights arrive. Raises ``ModelError``.
        """
        ...


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


class Grammar(Protocol):
    """Compiles constraints for one vocabulary."""

    def compile(self, spec: Any, vocabulary: Vocabulary) -> GrammarState:
        """A fresh state for ``spec``; raises ``RequestError`` naming what cannot be honoured. May run for long."""
        ...


class Vocabulary(Protocol):
    """The tokenizer as plugins see it (``lattice_core.tokenizer.Tokenizer``)."""

    @property
    def size(self) -> int:
        """Number of token ids, added tokens included; the model's logits may be wider."""
        ...

    @property
    def eos_ids(self) -> frozenset[int]:
        """All ids that end a sequence."""
        ...

    @property
    def json(self) -> bytes:
        """The tokenizer JSON."""
        ...

    @property
    def special_tokens(self) -> Mapping[str, str]:
        """Texts of ``bos_token``, ``eos_token``, ``unk_token`` and ``pad_token``, as far as the checkpoint names them."""
        ...

    def encode(self, text: str, *, control: bool) -> tuple[int, ...]:
        """Token ids; with ``control`` the literals of added tokens become those tokens, without it they are text."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids, special tokens left out."""
        ...

    def token_id(self, token: str) -> int | None:
        """The id of an added or ordinary token by its exact content."""
        ...

    def escape(self, text: str) -> str:
        """``text`` with every literal of an added token hidden, to be put into a template."""
        ...

    def encode_escaped(self, text: str) -> tuple[int, ...]:
        """Ids of a rendered template: what ``escape`` hid is text, all other literals are control tokens."""
        ...


class ChatFormat(Protocol):
    """Renders messages into a prompt for one tokenizer."""

    def render(self, messages: Sequence[Message], options: Mapping[str, Any]) -> Prompt:
        """The prompt up to where the assistant speaks. Raises ``RequestError`` with what the template says."""
        ...

    @property
    def stop_ids(self) -> frozenset[int]:
        """Ids that end an assistant's turn in this format, beside the model's own."""
        ...


class Generation(Protocol):
    """A submitted request as its frontend sees it. Iterating yields its events; the last one is its only terminal event."""

    @property
    def id(self) -> int:
        """A number unique in this process."""
        ...

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the prompt."""
        ...

    @property
    def adapter(self) -> str | None:
        """The name of the adapter that the answer is made with."""
        ...

    def __iter__(self) -> Iterator[Event]:
        """Events as they come; blocks the calling thread."""
        ...

    def __aiter__(self) -> AsyncIterator[Event]:
        """Events as they come, for an event loop."""
        ...

    def cancel(self) -> None:
        """Ask to stop; returns at once, may be called from any thread and more than once."""
        ...


class EngineAPI(Protocol):
    """The engine as frontends see it."""

    def submit(self, request: GenerationRequest) -> Generation:
        """Render, tokenise, check and queue a request; blocks for the tokeniser, so call it off an event loop.

        Raises every error that can be known before work begins: ``RequestError`` and its kind, ``ServerBusyError``,
        ``ShuttingDownError``, ``EngineDiedError``.
        """
        ...

    @property
    def model_id(self) -> str:
        """The name that the model is served under."""
        ...

    @property
    def model_info(self) -> ModelInfo:
        """What the loaded model says of itself."""
        ...

    @property
    def model_format(self) -> str:
        """The storage format of the loaded model, such as ``gguf Q4_1``."""
        ...

    @property
    def vocabulary(self) -> Vocabulary:
        """The tokenizer of the served model."""
        ...

    def adapters(self) -> tuple[AdapterInfo, ...]:
        """The resident adapters, in the order in which they were loaded."""
        ...

    def load_adapter(self, name: str, path: Path, *, default: bool = False) -> AdapterInfo:
        """Make the adapter at ``path`` resident and selectable as ``name``; requests go on meanwhile. Blocks until it is done.

        With ``default`` it also serves the requests that name the model itself. Raises ``AdapterError`` and its kinds,
        ``PluginError``, ``ShuttingDownError``, ``EngineDiedError``; then nothing is loaded.
        """
        ...

    def unload_adapter(self, name: str) -> int:
        """Refuse ``name`` to new requests from now on. Returns how many still use it: the last one's end frees it.

        With 0 it is freed already. Raises ``UnknownAdapterError``, ``ShuttingDownError``, ``EngineDiedError``.
        """
        ...

    def health(self) -> Health:
        """Whether requests can be served now."""
        ...

    def stats(self) -> EngineStats:
        """Counters and gauges as of now."""
        ...

    def on_death(self, callback: Callable[[LatticeError], None]) -> None:
        """Call ``callback`` from some thread if the engine dies; at once if it already has."""
        ...


class Frontend(Protocol):
    """A way in: an HTTP server, a pipe, a prompt."""

    def serve(self, engine: EngineAPI, stop: StopSignal) -> int:
        """Serve until done or until ``stop`` is set; returns the exit status."""
        ...


class StopSignal(Protocol):
    """Set by SIGINT, SIGTERM or the host program; a second signal ends the process at once."""

    def is_set(self) -> bool:
        """Whether the frontend should stop."""
        ...

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until set; returns whether it is."""
        ...

    def set(self) -> None:
        """Ask to stop."""
        ...

    def add_callback(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` (from any thread) when set; at once if it already is."""
        ...


class ModelSource(Protocol):
    """Where ``lattice pull`` gets models from."""

    def pull(self, reference: str, cache: Path, include: Sequence[str], report: Callable[[str, int, int | None], None]) -> Path:
        """Bring ``reference`` into ``cache`` atomically and return its path; idempotent.

        ``report(what, done_bytes, total_bytes)`` is called as bytes arrive. Raises ``LatticeError``.
        """
        ...


class Observer(Protocol):
    """Receives engine events for telemetry, on a thread of its own."""

    def observe(self, name: str, fields: Mapping[str, Any]) -> None:
        """One event, such as ``generation_finished`` with its counts. Errors are counted, never raised into the engine."""
        ...


__all__ = [
    "AdapterCheckpoint",
    "AdapterLoader",
    "AdapterModel",
    "Backend",
    "BatchSampler",
    "ChatFormat",
    "Checkpoint",
    "DescribingBackend",
    "EngineAPI",
    "Frontend",
    "Generation",
    "Grammar",
    "GrammarState",
    "Loader",
    "LogitsHandle",
    "Model",
    "ModelSource",
    "Observer",
    "Sampler",
    "StopSignal",
    "Vocabulary",
]
