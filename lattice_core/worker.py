"""The device thread: the only owner of one loaded model. It loads it, runs the scheduler, and says how it is.

Everything that touches the device is built and used here; what crosses to other threads is plain data.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from attrs import frozen

from lattice_core.causes import cause_of
from lattice_core.device_task import DeviceTask
from lattice_core.errors import EngineDiedError, LatticeError, ModelError, ServerBusyError, ShuttingDownError
from lattice_core.ledger import size_text
from lattice_core.scheduler import Scheduler
from lattice_core.types import Cancelled, Done

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from lattice_core.ledger import MemoryLedger
    from lattice_core.protocols import Backend, Checkpoint, Model, Sampler
    from lattice_core.scheduler import Row, SchedulerConfig
    from lattice_core.telemetry import Telemetry
    from lattice_core.types import Limits, ModelInfo

_LOG = logging.getLogger("lattice.worker")
_PAUSED_POLL = 0.1
"""Seconds between looks at rows that wait for a slow reader or for memory."""


@frozen
class WorkerParts:
    """What the device thread builds and runs. The factories are called on it."""

    checkpoint: Checkpoint
    backend: Callable[[], Backend]
    sampler: Callable[[], Sampler]
    limits: Limits
    scheduler: SchedulerConfig
    ledger: MemoryLedger
    telemetry: Telemetry
    max_queue: int
    progress: Callable[[int, int], None]


class Worker:
    """One device thread with its inbox. All public methods may be called from any thread."""

    def __init__(self, parts: WorkerParts) -> None:
        self._parts = parts
        self._condition = threading.Condition()
        self._inbox: deque[Row] = deque()
        self._tasks: deque[DeviceTask] = deque()
        self._woken = False
        self._closing: float | None = None
        self._loaded = threading.Event()
        self._load_error: LatticeError | None = None
        self._model: Model | None = None
        self._scheduler: Scheduler | None = None
        self._step_began: float | None = None
        self._death_callbacks: list[Callable[[LatticeError], None]] = []
        self.dead: EngineDiedError | None = None
        self.outstanding = 0
        self.counts = {"finished": 0, "cancelled": 0, "failed": 0, "prompt_tokens": 0, "completion_tokens": 0}
        self._thread = threading.Thread(target=self._run, name="lattice-device", daemon=True)

    # ------------------------------------------------------------------------------------ other threads

    def start(self) -> ModelInfo:
        """Load the model; returns when it is ready, raises ``ModelError`` when it cannot be loaded."""
        self._thread.start()
        self._loaded.wait()
        if self._load_error is not None or self._model is None:
            raise self._load_error or ModelError("the model was not loaded")
        return self._model.info

    def check_admission(self) -> None:
        """Raise what would refuse a request now, whatever it asks."""
        if self.dead is not None:
            raise self.dead
        if self._closing is not None:
            raise ShuttingDownError("the engine is shutting down")
        parts = self._parts
        if self.outstanding >= parts.scheduler.max_batch + parts.max_queue:
            raise ServerBusyError(
                f"{self.outstanding} requests are running or waiting: --max-batch {parts.scheduler.max_batch} may run and"
                f" --max-queue {parts.max_queue} may wait; try again later"
            )

    def submit(self, row: Row) -> None:
        """Queue a row. Raises ``ServerBusyError``, ``ShuttingDownError`` or ``EngineDiedError``."""
        with self._condition:
            self.check_admission()
            self.outstanding += 1
            self._inbox.append(row)
            self._woken = True
            self._condition.notify_all()

    def between_steps(self, work: Callable[[Model], Any]) -> Future[Any]:
        """Let the device thread do ``work(model)`` before its next step, or at once where it is the caller.

        Raises ``ShuttingDownError`` or ``EngineDiedError``; the future gets one of them where the engine ends before.
        """
        task = DeviceTask(work)
        if threading.current_thread() is self._thread and self._model is not None:
            task.run(self._model)
            return task.future
        with self._condition:
            if self.dead is not None:
                raise self.dead
            if self._closing is not None:
                raise ShuttingDownError("the engine is shutting down")
            self._tasks.append(task)
            self._woken = True
            self._condition.notify_all()
        return task.future

    def wake(self) -> None:
        """Make the loop look again: something was cancelled or read."""
        with self._condition:
            self._woken = True
            self._condition.notify_all()

    def on_death(self, callback: Callable[[LatticeError], None]) -> None:
        """Call ``callback`` when the engine dies; at once if it has."""
        with self._condition:
            if self.dead is None:
                self._death_callbacks.append(callback)
                return
            dead = self.dead
        callback(dead)

    @property
    def running(self) -> int:
        """Rows in the batch."""
        return 0 if self._scheduler is None else self._scheduler.running

    @property
    def steps(self) -> int:
        """Forward passes launched."""
        return 0 if self._scheduler is None else self._scheduler.steps

    @property
    def live_states(self) -> int:
        """States that the model holds."""
        return 0 if self._model is None else self._model.live_states()

    @property
    def closing(self) -> bool:
        """Whether the engine drains or has stopped."""
        return self._closing is not None

    def busy_for(self) -> float:
        """Seconds that the current step has been running; 0 between steps."""
        began = self._step_began
        return 0.0 if began is None else time.monotonic() - began

    def close(self, timeout: float) -> None:
        """Let what runs finish for at most ``timeout`` seconds, cancel the rest, end the thread."""
        with self._condition:
            if self._closing is None:
                self._closing = time.monotonic() + timeout
            self._condition.notify_all()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(timeout + 5.0)
            if self._thread.is_alive():
                _LOG.warning("the device thread is still in a step after %.1f s; leaving it behind", timeout + 5.0)
                self._refuse_tasks()

    # ------------------------------------------------------------------------------------ the device thread

    def _run(self) -> None:
        try:
            self._load()
        except LatticeError as error:
            self._load_error = error
        except (Exception, SystemExit) as error:  # noqa: BLE001  whatever a backend raises, the user gets one line
            _LOG.debug("loading failed", exc_info=True)
            self._load_error = ModelError(f"the model could not be loaded: {type(error).__name__}: {error}")
        self._loaded.set()
        if self._load_error is not None or self._scheduler is None or self._model is None:
            return
        try:
            self._loop(self._scheduler)
        except EngineDiedError as error:
            self._die(error)
        except BaseException as error:  # noqa: BLE001  the thread's end must be seen, whatever ended it
            _LOG.exception("the device thread failed")
            self._die(EngineDiedError("the engine's thread failed", detail=repr(error)))
        finally:
            self._refuse_tasks()
            try:
                self._model.close()
            except (Exception, SystemExit):  # noqa: BLE001  the engine has ended; there is nobody to tell but the log
                _LOG.exception("closing the model failed")

    def _load(self) -> None:
        parts = self._parts
        model = parts.backend().load(parts.checkpoint, parts.limits, parts.progress)
        if not parts.ledger.reserve(model.info.nbytes):
            model.close()
            raise ModelError(
                f"the model takes {size_text(model.info.nbytes)} and the memory limit is"
                f" {size_text(parts.ledger.limit or 0)}; raise --memory or choose a smaller model"
            )
        self._scheduler = Scheduler(
            model,
            parts.sampler(),
            parts.scheduler,
            ledger=parts.ledger,
            clock=time.monotonic,
            on_end=self._ended,
            on_step_error=self._step_error,
        )
        self._model = model

    def _loop(self, scheduler: Scheduler) -> None:
        worked = True
        while True:
            with self._condition:
                if scheduler.idle:
                    self._condition.wait_for(lambda: self._inbox or self._tasks or self._closing is not None)
                elif not worked:
                    self._condition.wait_for(
                        lambda: self._inbox or self._woken or self._closing is not None, timeout=_PAUSED_POLL
                    )
                self._woken = False
                arrived, self._inbox = self._inbox, deque()
                closing = self._closing
            for row in arrived:
                scheduler.add(row)
            if closing is not None and (scheduler.idle or time.monotonic() >= closing):
                scheduler.cancel_all("the engine is shutting down")
                return
            self._step_began = time.monotonic()
            self._run_tasks()
            worked = scheduler.step()
            self._step_began = None

    def _run_tasks(self) -> None:
        while self._model is not None:
            with self._condition:
                if not self._tasks:
                    return
                task = self._tasks.popleft()
            task.run(self._model)

    def _refuse_tasks(self) -> None:
        with self._condition:
            left, self._tasks = self._tasks, deque()
        for task in left:
            task.refuse(self.dead or ShuttingDownError("the engine is shutting down"))

    def _step_error(self, error: BaseException) -> None:
        # One line for the step, however many requests fail with it; frontends add none of their own.
        _LOG.error("a model step failed: %s", cause_of(error), exc_info=error if _LOG.isEnabledFor(logging.DEBUG) else None)
        self._parts.telemetry.record("step_failed", error=repr(error))

    def _ended(self, row: Row) -> None:
        terminal = row.generation.terminal
        outcome = "finished" if isinstance(terminal, Done) else "cancelled" if isinstance(terminal, Cancelled) else "failed"
        usage = row.usage
        if row.adapter is not None:
            row.adapter.release()
        with self._condition:
            self.outstanding -= 1
            self.counts[outcome] += 1
            self.counts["prompt_tokens"] += usage.prompt_tokens
            self.counts["completion_tokens"] += usage.completion_tokens
        self._parts.telemetry.record(
            "generation_ended",
            outcome=outcome,
            adapter=row.generation.adapter,
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens,
            seconds=row.timings().total,
        )

    def _die(self, error: EngineDiedError) -> None:
        _LOG.critical("%s%s", error.message, f" ({error.detail})" if error.detail else "")
        with self._condition:
            self.dead = error
            arrived, self._inbox = self._inbox, deque()
            callbacks, self._death_callbacks = self._death_callbacks, []
        if self._scheduler is not None:
            for row in arrived:
                self._scheduler.add(row)
            self._scheduler.fail_all(error)
        self._step_began = None
        for callback in callbacks:
            callback(error)
