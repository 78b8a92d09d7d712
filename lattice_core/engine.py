"""The engine facade: what frontends talk to. Checks a request before any work begins and hands it to the device thread."""

from __future__ import annotations

import itertools
import math
import secrets
import time
from typing import TYPE_CHECKING, Any, Self, TypeVar

from attrs import field, frozen

from lattice_core.adapters import AdapterLimits, Adapters, OpenedAdapter
from lattice_core.detokenizer import DetokenizerFactory
from lattice_core.errors import (
    AdapterError,
    ContextLengthExceededError,
    InsufficientMemoryError,
    RequestError,
    UnsupportedFeatureError,
)
from lattice_core.generation import Generation
from lattice_core.ledger import MemoryLedger, default_limit, size_text
from lattice_core.preparation import PreparationPool
from lattice_core.scheduler import Constraint, Row, SchedulerConfig
from lattice_core.stop_strings import StopStrings
from lattice_core.telemetry import Telemetry
from lattice_core.tokenizer import Tokenizer
from lattice_core.types import MODEL_ALIAS, EngineStats, Health, Limits, Prompt
from lattice_core.worker import Worker, WorkerParts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from types import TracebackType

    from lattice_core.adapters import AdapterLease
    from lattice_core.errors import EngineDiedError, LatticeError
    from lattice_core.protocols import (
        AdapterCheckpoint,
        Backend,
        ChatFormat,
        Checkpoint,
        Grammar,
        Observer,
        Sampler,
        Vocabulary,
    )
    from lattice_core.types import AdapterInfo, GenerationRequest, ModelInfo, SamplingParams

T = TypeVar("T")


@frozen
class EngineConfig:
    """Bounds and names of an engine. ``memory`` None is nine tenths of physical memory; times are seconds."""

    model_id: str
    limits: Limits = field(factory=Limits)
    max_queue: int = 32
    memory: int | None = None
    prefill_chunk: int = 512
    slow_reader_seconds: float = 60.0
    stall_seconds: float = 300.0
    prepare_seconds: float = 60.0
    adapter_seconds: float = 600.0
    adapters: AdapterLimits = field(factory=AdapterLimits)
    format: str = ""


class Engine:
    """Implements ``protocols.EngineAPI`` for one loaded model. As a context manager it closes on leaving."""

    def __init__(
        self,
        config: EngineConfig,
        parts: WorkerParts,
        tokenizer: Tokenizer,
        chat_format: ChatFormat,
        grammars: Mapping[str, Callable[[], Grammar]],
        open_adapter: Callable[[Path], AdapterCheckpoint] | None = None,
    ) -> None:
        """Use ``Engine.start``; loads the model on its own thread and waits for it."""
        self._config = config
        self._ledger = parts.ledger
        self._telemetry = parts.telemetry
        self._tokenizer = tokenizer
        self._chat_format = chat_format
        self._grammars = dict(grammars)
        self._open_adapter = open_adapter
        self._compilers: dict[str, Grammar] = {}
        self._detokenizers = DetokenizerFactory(tokenizer)
        self._numbers = itertools.count(1)
        self._worker = Worker(parts)
        self._info = self._worker.start()
        self._pool = PreparationPool()
        names = (config.model_id, MODEL_ALIAS)
        self._adapters = Adapters(names, config.adapters, parts.ledger, self._worker.between_steps)

    @classmethod
    def start(  # noqa: PLR0913  # the parts of an engine, each given by its name
        cls,
        *,
        checkpoint: Checkpoint,
        backend: Callable[[], Backend],
        sampler: Callable[[], Sampler],
        chat_format: Callable[[Vocabulary], ChatFormat],
        config: EngineConfig,
        grammars: Mapping[str, Callable[[], Grammar]] | None = None,
        observers: Mapping[str, Observer] | None = None,
        progress: Callable[[int, int], None] | None = None,
        open_adapter: Callable[[Path], AdapterCheckpoint] | None = None,
    ) -> Engine:
        """Load the model on its own thread and return when it can serve. Raises ``ModelError``.

        The tokenizer and the chat format are made first: what is wrong with them is known before any weight is loaded.
        ``backend`` and ``sampler`` are called on the device thread. ``progress(done, total)`` tells loaded bytes.
        ``open_adapter`` is called for each ``load_adapter``, on the pool; without it none can be loaded.
        """
        tokenizer = Tokenizer.from_checkpoint(checkpoint)
        rendered = chat_format(tokenizer)
        telemetry = Telemetry(observers or {})
        parts = WorkerParts(
            checkpoint=checkpoint,
            backend=backend,
            sampler=sampler,
            limits=config.limits,
            scheduler=SchedulerConfig(
                max_batch=config.limits.max_batch,
                prefill_chunk=config.prefill_chunk,
                slow_reader_seconds=config.slow_reader_seconds,
            ),
            ledger=MemoryLedger(default_limit() if config.memory is None else config.memory),
            telemetry=telemetry,
            max_queue=config.max_queue,
            progress=progress or (lambda _done, _total: None),
        )
        try:
            return cls(config, parts, tokenizer, rendered, grammars or {}, open_adapter)
        except BaseException:
            telemetry.close()
            raise

    # ------------------------------------------------------------------------------------ what it serves

    @property
    def model_id(self) -> str:
        """The name that the model is served under."""
        return self._config.model_id

    @property
    def model_info(self) -> ModelInfo:
        """What the loaded model says of itself."""
        return self._info

    @property
    def model_format(self) -> str:
        """The storage format of the loaded model."""
        return self._config.format

    @property
    def vocabulary(self) -> Vocabulary:
        """The tokenizer of the served model."""
        return self._tokenizer

    @property
    def dead(self) -> EngineDiedError | None:
        """Why the engine died, if it did."""
        return self._worker.dead

    def health(self) -> Health:
        """Whether requests can be served now."""
        dead = self._worker.dead
        if dead is not None:
            return Health(ok=False, status="dead", message=dead.message)
        if self._worker.closing:
            return Health(ok=False, status="draining", message="the engine is shutting down")
        busy = self._worker.busy_for()
        if busy > self._config.stall_seconds:
            return Health(ok=False, status="stalled", message=f"one model step has been running for {busy:.0f} s")
        return Health(ok=True, status="ok")

    def stats(self) -> EngineStats:
        """Counters and gauges as of now."""
        worker = self._worker
        running = worker.running
        return EngineStats(
            queued=max(0, worker.outstanding - running),
            running=running,
            live_states=worker.live_states,
            steps=worker.steps,
            reserved_bytes=self._ledger.reserved,
            **worker.counts,
        )

    def on_death(self, callback: Callable[[LatticeError], None]) -> None:
        """Call ``callback`` from some thread if the engine dies; at once if it already has."""
        self._worker.on_death(callback)

    # ------------------------------------------------------------------------------------ adapters

    def adapters(self) -> tuple[AdapterInfo, ...]:
        """The resident adapters, in the order in which they were loaded."""
        return self._adapters.infos()

    def load_adapter(self, name: str, path: Path, *, default: bool = False) -> AdapterInfo:
        """Make an adapter resident; see ``protocols.EngineAPI.load_adapter``."""
        opener = self._open_adapter
        if opener is None:
            raise AdapterError("this engine was started without a loader of adapters")

        def opened() -> OpenedAdapter:
            return self._pool.run(
                f"opening the adapter {name!r}",
                lambda: OpenedAdapter.of(opener(path)),
                self._config.adapter_seconds,
                refusal=AdapterError,
                late=lambda result: result.checkpoint.close(),
            )

        return self._adapters.load(name, opened, default=default)

    def unload_adapter(self, name: str) -> int:
        """Take an adapter out of service; see ``protocols.EngineAPI.unload_adapter``."""
        return self._adapters.unload(name)

    # ------------------------------------------------------------------------------------ requests

    def submit(self, request: GenerationRequest) -> Generation:
        """Check, render, tokenise and queue a request; see ``protocols.EngineAPI.submit``."""
        self._worker.check_admission()
        adapter = self._adapters.lease(request.model, request.adapter)
        try:
            return self._submit(request, adapter)
        except BaseException:
            if adapter is not None:
                adapter.release()
            raise

    def _submit(self, request: GenerationRequest, adapter: AdapterLease | None) -> Generation:
        _check_sampling(request.sampling)
        prompt = self._prepare("rendering the prompt", lambda: self._prompt(request))
        max_tokens = self._max_tokens(len(prompt.ids), request.max_tokens)
        reserve = self._info.state_bytes(len(prompt.ids) + max_tokens)
        weights = self._info.nbytes + self._adapters.nbytes
        if not self._ledger.fits(reserve, beside=weights):
            raise InsufficientMemoryError(
                f"this request may need {size_text(reserve)} of state beside {size_text(weights)} of weights, and the"
                f" memory limit is {size_text(self._ledger.limit or 0)}; ask for fewer tokens or raise --memory"
            )
        constraint = self._constraint(request)
        # Raw prompts end here too: who renders a chat by hand expects its turns to end as the format's do.
        stop_ids = self._info.eos_ids | self._tokenizer.eos_ids | self._chat_format.stop_ids
        name = None if adapter is None else adapter.name
        generation = Generation(next(self._numbers), len(prompt.ids), self._worker.wake, name)
        seed = request.sampling.seed
        self._worker.submit(
            Row(
                generation=generation,
                prompt=prompt.ids,
                channel=prompt.initial_channel,
                max_tokens=max_tokens,
                sampling=request.sampling,
                seed=secrets.randbits(63) if seed is None else seed,
                stop_ids=stop_ids,
                stops=StopStrings(request.stop),
                detokenizer=self._detokenizers.make(),
                constraint=constraint,
                reserve=reserve,
                clock=time.monotonic,
                submitted=time.monotonic(),
                adapter=adapter,
            )
        )
        return generation

    def render(self, request: GenerationRequest) -> Prompt:
        """The prompt that ``submit`` would feed; needs no weights."""
        return self._prepare("rendering the prompt", lambda: self._prompt(request))

    def close(self, timeout: float = 5.0) -> None:
        """Stop admitting, let running requests finish for ``timeout`` seconds, cancel the rest, end the thread."""
        self._worker.close(timeout)
        self._pool.close()
        self._telemetry.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    # ------------------------------------------------------------------------------------ checks

    def _prompt(self, request: GenerationRequest) -> Prompt:
        if (request.messages is None) == (request.prompt is None):
            raise RequestError("give either messages or a prompt", param="messages")
        if request.messages is not None:
            if not request.messages:
                raise RequestError("messages must not be empty", param="messages")
            prompt = self._chat_format.render(request.messages, request.template_options)
        elif isinstance(request.prompt, str):
            prompt = Prompt(self._tokenizer.encode(request.prompt, control=True))
        else:
            prompt = Prompt(tuple(request.prompt or ()))
        if not prompt.ids:
            raise RequestError("the prompt is empty", param="prompt")
        wrong = next((token for token in prompt.ids if not 0 <= token < self._info.vocab_size), None)
        if wrong is not None:
            raise RequestError(
                f"token {wrong} of the prompt is outside the model's vocabulary of {self._info.vocab_size}", param="prompt"
            )
        return prompt

    def _max_tokens(self, prompt_tokens: int, wanted: int | None) -> int:
        context = self._info.context
        if prompt_tokens >= context:
            raise ContextLengthExceededError(
                f"the prompt has {prompt_tokens} tokens and the context of this model is {context} tokens;"
                " shorten the prompt or start with a larger --context",
                param="messages",
            )
        if wanted is not None and wanted < 1:
            raise RequestError(f"max_tokens is {wanted}; it must be at least 1", param="max_tokens")
        rest = context - prompt_tokens
        return rest if wanted is None else min(wanted, rest)

    def _constraint(self, request: GenerationRequest) -> Constraint | None:
        if request.grammar is None:
            return None
        name = request.grammar.name
        if name not in self._grammars:
            known = ", ".join(sorted(self._grammars)) or "none"
            raise UnsupportedFeatureError(f"no grammar plugin is named {name!r}; available: {known}", param="response_format")
        if name not in self._compilers:
            self._compilers[name] = self._grammars[name]()
        compiler, spec = self._compilers[name], request.grammar.spec
        state = self._prepare("compiling the grammar", lambda: compiler.compile(spec, self._tokenizer))
        eos = self._info.eos_ids | self._tokenizer.eos_ids
        return Constraint(state, self._tokenizer.size, self._info.vocab_size, eos)

    def _prepare(self, what: str, work: Callable[[], T]) -> T:
        """Run work that a request's text decides on the pool, within the deadline."""
        return self._pool.run(what, work, self._config.prepare_seconds)


def _check_sampling(params: SamplingParams) -> None:
    """Numbers that no sampler could make sense of; narrower limits are the samplers'."""
    numbers: dict[str, Any] = {
        "temperature": params.temperature,
        "top_p": params.top_p,
        "repetition_penalty": params.repetition_penalty,
    }
    for name, value in numbers.items():
        if not math.isfinite(value):
            raise RequestError(f"{name} is {value}; it must be a finite number", param=name)
    if params.temperature < 0:
        raise RequestError(f"temperature is {params.temperature}; it must be 0 or more", param="temperature")
    if not 0 < params.top_p <= 1:
        raise RequestError(f"top_p is {params.top_p}; it must be above 0 and at most 1", param="top_p")
    if params.top_k < 0:
        raise RequestError(f"top_k is {params.top_k}; it must be 0 (off) or more", param="top_k")
    if params.repetition_penalty <= 0:
        raise RequestError(f"repetition_penalty is {params.repetition_penalty}; it must be above 0", param="repetition_penalty")
