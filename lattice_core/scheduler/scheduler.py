"""Continuous batching as a pure state machine: no thread, and no clock but the one it is given.

Each ``step`` sweeps cancelled rows, admits waiting ones, plans one ragged forward pass (a token for every decoding row, chunks
of prompts beside them), samples it on the device, launches it, and only then reads the tokens of the step before.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from attrs import field, frozen

from lattice_core.errors import EngineDiedError, InsufficientMemoryError, LatticeError, StepError
from lattice_core.ledger import size_text
from lattice_core.scheduler.sampling import PLUGIN_FAULTS, Deferred, Sampled, TokenSampling, row_error
from lattice_core.types import Pending, RowInput, Want

if TYPE_CHECKING:
    from collections.abc import Callable

    from lattice_core.ledger import MemoryLedger
    from lattice_core.protocols import Model, Sampler
    from lattice_core.scheduler.row import Row


@frozen
class SchedulerConfig:
    """Bounds of the loop.

    ``prefill_chunk`` tokens of prompts at most go into one step; beside decoding rows as many as took about
    ``beside_decode_seconds`` lately. A row whose reader is ``reader_tokens`` behind pauses, and is cancelled after
    ``slow_reader_seconds``. ``max_failed_steps`` failed steps in a row end the engine.
    """

    max_batch: int = 16
    prefill_chunk: int = 512
    beside_decode_seconds: float = 0.25
    reader_tokens: int = 1024
    slow_reader_seconds: float = 60.0
    max_failed_steps: int = 3


@frozen(eq=False)
class _InFlight:
    """A launched step whose tokens are not read yet."""

    groups: list[Sampled] = field(factory=list)
    deferred: Deferred | None = None
    logits: Any = None
    prefill_tokens: int = 0
    launched_at: float = 0.0


_MIN_CHUNK = 16


class Scheduler:
    """Owns the rows of one model. All methods run on the model's device thread.

    ``on_end(row)`` is called once for each row, after its terminal event.
    """

    def __init__(
        self,
        model: Model,
        sampler: Sampler,
        config: SchedulerConfig,
        *,
        ledger: MemoryLedger,
        clock: Callable[[], float],
        on_end: Callable[[Row], None],
        on_step_error: Callable[[BaseException], None],
    ) -> None:
        self._model = model
        self._sampler = sampler
        self._config = config
        self._ledger = ledger
        self._clock = clock
        self._on_end = on_end
        self._on_step_error = on_step_error
        self._sampling = TokenSampling(model, sampler)
        self._waiting: deque[Row] = deque()
        self._active: list[Row] = []
        self._in_flight: _InFlight | None = None
        self._failed_steps = 0
        self._prefill_rate: float | None = None
        self.steps = 0

    # ------------------------------------------------------------------------------------ what the worker sees

    def add(self, row: Row) -> None:
        """Queue a row."""
        self._waiting.append(row)

    @property
    def queued(self) -> int:
        """Rows that wait."""
        return len(self._waiting)

    @property
    def running(self) -> int:
        """Rows that have a state in the model."""
        return len(self._active)

    @property
    def idle(self) -> bool:
        """Whether there is nothing at all to do."""
        return not (self._waiting or self._active or self._in_flight)

    def step(self) -> bool:
        """One turn of the loop; False when nothing could be done now (all rows wait for their readers or for memory).

        Raises ``EngineDiedError`` when the engine cannot continue.
        """
        self._sweep()
        self._admit()
        try:
            launched = self._launch()
        except PLUGIN_FAULTS as error:
            # The step before was sound: what it made still counts, and rows that it ended have ended well.
            self._step_failed(error, sound=self._in_flight)
            return True
        if self._model.info.lookahead and launched is not None:
            previous, self._in_flight = self._in_flight, launched
        else:
            previous, self._in_flight = self._in_flight or launched, None
        if previous is not None:
            try:
                self._resolve(previous)
            except PLUGIN_FAULTS as error:
                # The step launched ahead stands on tokens that nobody has seen: it goes with the failed one.
                self._step_failed(error)
        return launched is not None or previous is not None

    def fail_all(self, error: LatticeError) -> None:
        """End every row; used when the engine dies."""
        for row in [*self._active, *self._waiting]:
            row.fail(error)
            self._on_end(row)
        self._active, self._in_flight = [], None
        self._waiting.clear()

    def cancel_all(self, reason: str) -> None:
        """Cancel every row; used at shutdown."""
        for row in [*self._active, *self._waiting]:
            row.cancel(reason)
        self._sweep()

    # ------------------------------------------------------------------------------------ rows come and go

    def _sweep(self) -> None:
        """End rows that were cancelled, give back what ended rows held, pause rows whose reader is behind."""
        if any(row.generation.cancelled or row.ended for row in self._waiting):
            kept: deque[Row] = deque()
            for row in self._waiting:
                if row.generation.cancelled or row.ended:
                    row.cancel()
                    self._on_end(row)
                else:
                    kept.append(row)
            self._waiting = kept
        for row in self._active:
            if row.generation.cancelled and not row.ended:
                row.cancel()
            elif not row.ended:
                self._watch_reader(row)
        if any(row.ended for row in self._active):
            self._release([row for row in self._active if row.ended])

    def _watch_reader(self, row: Row) -> None:
        generation = row.generation
        if row.paused_since is None:
            if generation.undelivered >= self._config.reader_tokens:
                row.paused_since, generation.paused = self._clock(), True
        elif generation.undelivered == 0:
            row.paused_since, generation.paused = None, False
        elif self._clock() - row.paused_since > self._config.slow_reader_seconds:
            row.cancel("the reader is too slow")

    def _release(self, rows: list[Row]) -> None:
        gone = set(map(id, rows))
        self._active = [row for row in self._active if id(row) not in gone]
        states = [row.state for row in rows if row.state is not None]
        for row in rows:
            row.state = row.sampler_state = row.next = None
            self._ledger.free(row.reserve)
            self._on_end(row)
        try:
            self._model.release(states)
        except PLUGIN_FAULTS as error:
            self._step_failed(error, sound=self._in_flight)

    def _admit(self) -> None:
        """Move rows from the queue into the batch while there is room, first come first served."""
        while self._waiting and len(self._active) < self._config.max_batch:
            row = self._waiting[0]
            if not self._ledger.reserve(row.reserve):
                if self._active:
                    return
                # No row can give anything back: adapters that came after it was accepted have taken its room.
                self._waiting.popleft()
                row.fail(
                    InsufficientMemoryError(
                        f"the memory for this request ({size_text(row.reserve)}) was taken by adapters while it waited; ask for"
                        " fewer tokens, unload an adapter or raise --memory"
                    )
                )
                self._on_end(row)
                continue
            self._waiting.popleft()
            self._active.append(row)
            row.start()
            try:
                row.sampler_state = self._sampler.new_state(row.sampling, row.prompt, self._model.info.vocab_size)
            except PLUGIN_FAULTS as error:
                row.fail(row_error(error, "sampler"))
                continue
            try:
                row.state = self._model.new_state()
            except PLUGIN_FAULTS as error:
                self._step_failed(error, sound=self._in_flight)

    # ------------------------------------------------------------------------------------ one forward pass

    def _launch(self) -> _InFlight | None:
        """Plan, forward, sample and launch one step; None when no row can take part."""
        plan: list[RowInput] = []
        wanted: list[Row] = []
        for row in self._active:
            if row.next is not None and row.state is not None and self._may_decode(row):
                plan.append(RowInput(row.state, row.next, adapter=row.adapter_id))
                wanted.append(row)
                row.next = None
        budget = self._prefill_budget(decoding=bool(plan))
        prefill_tokens = 0
        for row in self._active:
            if budget <= 0:
                break
            if row.state is None or row.ended or not row.prefilling:
                continue
            tokens = row.feed(min(budget, len(row.prompt) - row.fed))
            budget -= len(tokens)
            prefill_tokens += len(tokens)
            plan.append(RowInput(row.state, tokens, Want.NONE if row.prefilling else Want.LAST, row.adapter_id))
            if not row.prefilling:
                wanted.append(row)
        if not plan:
            return None
        now = self._clock()
        logits = self._model.forward(plan).array
        groups, deferred = self._sampling.begin(wanted, logits) if wanted else ([], None)
        for group in groups:
            for index, row in enumerate(group.rows):
                row.launched += 1
                row.next = Pending(group.tokens, index)
        pending = [group.tokens for group in groups]
        self._model.launch(pending if deferred is None and pending else [*pending, logits])
        self.steps += 1
        return _InFlight(groups, deferred, logits, prefill_tokens, now)

    def _may_decode(self, row: Row) -> bool:
        return not row.ended and row.paused_since is None and row.launched < row.max_tokens

    def _prefill_budget(self, *, decoding: bool) -> int:
        """Tokens of prompts for this step: beside decoding rows no more than delays them a moment."""
        if not decoding or self._prefill_rate is None:
            return self._config.prefill_chunk
        beside = int(self._prefill_rate * self._config.beside_decode_seconds)
        return max(_MIN_CHUNK, min(self._config.prefill_chunk, beside))

    def _resolve(self, step: _InFlight) -> None:
        """Read the tokens of a launched step and let every row take its own."""
        vocab_size = self._model.info.vocab_size
        for group in step.groups:
            for row, token in zip(group.rows, self._model.read(group.tokens), strict=True):
                self._accept(row, token, vocab_size)
        if step.deferred is not None:
            for row, token in self._sampling.complete(step.deferred):
                row.launched += 1
                self._accept(row, token, vocab_size)
                row.next = (token,)
        if step.groups or step.deferred is not None:
            self._failed_steps = 0
        else:
            # Nothing was sampled: wait all the same, or chunks of prompts would pile up on the device past any cancel.
            self._model.wait([step.logits])
        if step.prefill_tokens:
            seconds = max(self._clock() - step.launched_at, 1e-6)
            rate = step.prefill_tokens / seconds
            self._prefill_rate = rate if self._prefill_rate is None else (self._prefill_rate + rate) / 2

    def _accept(self, row: Row, token: int, vocab_size: int) -> None:
        if row.ended:
            return
        if row.generation.cancelled:
            row.cancel()
            return
        try:
            row.accept(token, vocab_size)
        except PLUGIN_FAULTS as error:
            row.fail(row_error(error, "output pipeline"))

    def _step_failed(self, error: BaseException, sound: _InFlight | None = None) -> None:
        """A forward pass failed: its rows fail with it, the model starts afresh, three in a row end the engine.

        ``sound`` is a step before it whose tokens are delivered first.
        """
        self._on_step_error(error)
        failed_steps = self._failed_steps + 1
        self._in_flight = None
        if sound is not None:
            with suppress(*PLUGIN_FAULTS):  # its rows fail with the step that is being reported
                self._resolve(sound)
        self._failed_steps = failed_steps
        cause = error if isinstance(error, StepError) else StepError("a model step failed", detail=repr(error))
        failed, self._active = self._active, []
        for row in failed:
            row.fail(cause)
            row.state = row.sampler_state = row.next = None
            self._ledger.free(row.reserve)
            self._on_end(row)
        try:
            self._model.reset()
        except PLUGIN_FAULTS as again:
            raise EngineDiedError("the model could not be reset after a failed step", detail=repr(again)) from again
        if self._failed_steps >= self._config.max_failed_steps:
            raise EngineDiedError(
                f"{self._failed_steps} model steps in a row failed; the engine stops", detail=repr(error)
            ) from error
