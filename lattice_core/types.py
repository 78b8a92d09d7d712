"""Plain immutable data that crosses the seams: requests, events, tensors, plans. No arrays of a backend, no numpy."""

from __future__ import annotations

from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Any, NewType

from attrs import field, frozen

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lattice_core.errors import LatticeError

StateId = NewType("StateId", int)
"""Names one sequence's state inside a model."""

AdapterId = NewType("AdapterId", int)
"""Names one loaded adapter inside a model."""

MODEL_ALIAS = "lattice"
"""A request may name the served model so, whatever it is."""

# ---------------------------------------------------------------------------------------------- requests


@frozen
class Message:
    """One chat message. ``role`` is ``system``, ``user``, ``assistant``, ``developer`` or ``tool``."""

    role: str
    content: str


@frozen
class SamplingParams:
    """What the caller asks of a sampler. The defaults are the neutral ones; the server's defaults are options.

    ``temperature`` <= 0 is greedy; ``top_k`` 0 is off; ``top_p`` 1.0 is off; ``repetition_penalty`` 1.0 is off.
    ``seed`` None draws a fresh one for the request.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    seed: int | None = None


@frozen
class GrammarRequest:
    """A constraint on the output: the name of a grammar plugin and what that plugin compiles."""

    name: str
    spec: Any = None


@frozen
class GenerationRequest:
    """One request, of any frontend. Exactly one of ``messages`` and ``prompt`` is given.

    ``prompt`` is text that is parsed with control tokens (the caller rendered it) or token ids. ``max_tokens`` None means
    the rest of the context; more than the rest is clamped. ``stop`` are strings, earliest match wins, never emitted.
    ``model`` None, ``lattice`` or the served name is the served model, with the default adapter where there is one; the name
    of an adapter is the served model with that. ``adapter`` names one beside ``model``; an empty text is none at all.
    """

    messages: tuple[Message, ...] | None = None
    prompt: str | tuple[int, ...] | None = None
    model: str | None = None
    adapter: str | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    sampling: SamplingParams = field(factory=SamplingParams)
    grammar: GrammarRequest | None = None
    template_options: Mapping[str, Any] = field(factory=dict)


@frozen
class Prompt:
    """A rendered prompt. ``boundaries`` are offsets into ``ids`` where a message ends (good places for snapshots)."""

    ids: tuple[int, ...]
    boundaries: tuple[int, ...] = ()
    initial_channel: str = "content"


# ---------------------------------------------------------------------------------------------- events


class FinishReason(StrEnum):
    """Why a generation ended by itself."""

    STOP = "stop"
    LENGTH = "length"


@frozen
class Usage:
    """Token counts of one request. ``completion_tokens`` counts sampled tokens, without the end-of-sequence token."""

    prompt_tokens: int = 0
    completion_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        """Prompt and completion together."""
        return self.prompt_tokens + self.completion_tokens


@frozen
class Timings:
    """Seconds. ``first_token`` is None when no token was produced."""

    queued: float = 0.0
    first_token: float | None = None
    total: float = 0.0


@frozen
class Started:
    """The request left the queue."""

    prompt_tokens: int


@frozen
class Progress:
    """Prompt tokens processed so far, of ``total``."""

    processed: int
    total: int


@frozen
class Delta:
    """New text on ``channel`` of choice ``index``. Concatenated texts of a channel equal the decoded tokens."""

    text: str
    token_ids: tuple[int, ...] = ()
    channel: str = "content"
    index: int = 0


@frozen
class Done:
    """Terminal: the generation ended by itself."""

    finish_reason: FinishReason
    usage: Usage
    timings: Timings


@frozen
class Cancelled:
    """Terminal: the request was cancelled, by its client, by the slow-reader limit or by shutdown."""

    usage: Usage = field(factory=Usage)
    reason: str = "cancelled"


@frozen
class Failed:
    """Terminal: the request failed with ``error``."""

    error: LatticeError
    usage: Usage = field(factory=Usage)


Event = Started | Progress | Delta | Done | Cancelled | Failed
Terminal = Done | Cancelled | Failed

# ---------------------------------------------------------------------------------------------- engine


@frozen
class Health:
    """``ok`` is what a probe wants to know; ``status`` is ``ok``, ``stalled``, ``draining`` or ``dead``."""

    ok: bool
    status: str
    message: str = ""


@frozen
class EngineStats:
    """Gauges and counters of one engine since it started."""

    queued: int = 0
    running: int = 0
    live_states: int = 0
    finished: int = 0
    cancelled: int = 0
    failed: int = 0
    steps: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    reserved_bytes: int = 0


@frozen
class AdapterInfo:
    """An adapter that is resident beside the model. ``nbytes`` are those that it takes there.

    ``default`` ones serve the requests that name the model itself. ``requests`` use it now or wait for their turn; an
    ``unloading`` one takes no new ones and is freed with the last of them.
    """

    name: str
    format: str
    nbytes: int
    fingerprint: str
    default: bool = False
    requests: int = 0
    unloading: bool = False


# ---------------------------------------------------------------------------------------------- weights


@frozen
class AffineQuantization:
    """Packed weights ``w = q * scale + bias`` per group of ``group_size`` along the last axis.

    The packed words are little-endian u32. A row's words are one little-endian number in which element ``i`` stands at bits
    ``bits * i`` to ``bits * (i + 1)`` (the layout of MLX's affine mode). Bits are 2, 3, 4, 5, 6 or 8; scales and biases are
    F16, BF16 or F32, one for each group: ``shape[:-1] + (shape[-1] / group_size,)``.
    """

    bits: int
    group_size: int
    scale_dtype: str = "F16"


@frozen
class TensorSpec:
    """One tensor of a checkpoint: its name in Hugging Face notation, dtype (``F32 F16 BF16 U32 I64 ...``) and shape.

    For a quantised tensor ``shape`` is the logical shape of the weights, not of the packed words.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    quantization: AffineQuantization | None = None


@frozen
class TensorData:
    """The bytes of one tensor, row-major little-endian; for a quantised one ``data`` are the packed u32 words."""

    spec: TensorSpec
    data: memoryview
    scales: memoryview | None = None
    biases: memoryview | None = None


@frozen
class LowRankUpdate:
    """What an adapter adds to one linear module: ``W + scale * B A`` (LoRA, Hu et al., 2021, arXiv:2106.09685).

    ``a`` holds A [rank, in] and ``b`` holds B [out, rank], both plain F32, F16 or BF16.
    """

    a: TensorData
    b: TensorData
    scale: float

    @property
    def rank(self) -> int:
        """The inner width of the product."""
        return self.a.spec.shape[0]


@frozen
class Match:
    """A loader's answer to "can you open this path": higher ``score`` wins, equal scores are an ambiguity error."""

    score: int
    detail: str


@frozen
class Limits:
    """What the operator allows a model: context in tokens, rows in a batch, dtype of activations (None: the device's)."""

    context: int | None = None
    max_batch: int = 16
    dtype: str | None = None


@frozen
class ModelInfo:
    """What a loaded model says of itself.

    ``context`` is in tokens. ``state_bytes(n) = state_bytes_fixed + n * state_bytes_per_token`` estimates one row's state
    of n tokens. ``device`` is a human-readable line. ``lookahead`` says that launching a step returns before it is computed,
    so that the next one is worth launching before this one is read.
    """

    architecture: str
    vocab_size: int
    context: int
    eos_ids: frozenset[int]
    device: str
    dtype: str
    nbytes: int
    state_bytes_per_token: int = 0
    state_bytes_fixed: int = 0
    fingerprint: str = ""
    lookahead: bool = True

    def state_bytes(self, tokens: int) -> int:
        """Bytes that one row's state of ``tokens`` tokens takes, estimated."""
        return self.state_bytes_fixed + tokens * self.state_bytes_per_token


@frozen
class ModelDescription:
    """What a backend can say of a checkpoint without reading weights.

    ``missing`` are tensors that the architecture needs and the checkpoint lacks, ``unexpected`` those that it does not know,
    ``misshapen`` one line for each tensor of another shape or storage, ``skipped`` tensors that are known and not used (such as
    those of a vision tower). ``weight_bytes`` is what the weights take when loaded, ``dtype`` that of activations.
    """

    architecture: str
    vocab_size: int
    context: int
    dtype: str
    weight_bytes: int
    state_bytes_fixed: int
    state_bytes_per_token: int
    missing: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()
    misshapen: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()

    def state_bytes(self, tokens: int) -> int:
        """Bytes that one row's state of ``tokens`` tokens takes, estimated."""
        return self.state_bytes_fixed + tokens * self.state_bytes_per_token


# ---------------------------------------------------------------------------------------------- plans


class Want(Enum):
    """Which logits of a row's tokens a forward pass returns."""

    NONE = "none"
    LAST = "last"
    ALL = "all"


@frozen(eq=False)
class Pending:
    """A token that was sampled on the device and not read yet: element ``index`` of the sampled array ``tokens``."""

    tokens: Any
    index: int


@frozen(eq=False)
class RowInput:
    """One row of a plan: the tokens that its state consumes in this step, with the adapter that changes the weights for it.

    A state keeps to one adapter: what it has consumed was computed with it.
    """

    state: StateId
    tokens: tuple[int, ...] | Pending
    want: Want = Want.LAST
    adapter: AdapterId | None = None

    @property
    def count(self) -> int:
        """How many tokens the state consumes."""
        return 1 if isinstance(self.tokens, Pending) else len(self.tokens)
