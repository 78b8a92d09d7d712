"""One request inside the scheduler: what it still wants of the model, and how its tokens become events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import define

from lattice_core.errors import SamplerError
from lattice_core.scheduler.draw import uniform
from lattice_core.types import Cancelled, Delta, Done, Failed, FinishReason, Progress, Started, Timings, Usage

if TYPE_CHECKING:
    from collections.abc import Callable

    from lattice_core.adapters import AdapterLease
    from lattice_core.detokenizer import Detokenizer
    from lattice_core.errors import LatticeError
    from lattice_core.generation import Generation
    from lattice_core.scheduler.constraint import Constraint
    from lattice_core.stop_strings import StopStrings
    from lattice_core.types import AdapterId, Pending, SamplingParams, StateId


@define(eq=False, kw_only=True)
class Row:
    """One request. ``launched`` counts sampled tokens, of which the last one may not be read yet; ``produced`` those kept.

    ``reserve`` are the bytes that its state may take, ``next`` what its state consumes next once the prompt is fed,
    ``adapter`` what all of its tokens are computed with.
    """

    generation: Generation
    prompt: tuple[int, ...]
    channel: str
    max_tokens: int
    sampling: SamplingParams
    seed: int
    stop_ids: frozenset[int]
    stops: StopStrings
    detokenizer: Detokenizer
    constraint: Constraint | None
    reserve: int
    clock: Callable[[], float]
    submitted: float
    adapter: AdapterLease | None = None
    state: StateId | None = None
    sampler_state: Any = None
    fed: int = 0
    launched: int = 0
    produced: int = 0
    next: tuple[int, ...] | Pending | None = None
    paused_since: float | None = None
    started: float | None = None
    first_token: float | None = None

    # ------------------------------------------------------------------------------------ where it stands

    @property
    def ended(self) -> bool:
        """Whether the terminal event is out."""
        return self.generation.terminal is not None

    @property
    def prefilling(self) -> bool:
        """Whether prompt tokens remain to be fed."""
        return self.fed < len(self.prompt)

    @property
    def adapter_id(self) -> AdapterId | None:
        """How the model calls its adapter."""
        return None if self.adapter is None else self.adapter.id

    @property
    def usage(self) -> Usage:
        """Counts as of now."""
        return Usage(len(self.prompt) if self.started is not None else 0, self.produced)

    def draw(self) -> float:
        """The uniform number of the token that is sampled next."""
        return uniform(self.seed, self.launched)

    # ------------------------------------------------------------------------------------ what happens to it

    def start(self) -> None:
        """The row leaves the queue."""
        self.started = self.clock()
        self.generation.emit(Started(len(self.prompt)))

    def feed(self, count: int) -> tuple[int, ...]:
        """The next ``count`` tokens of the prompt."""
        tokens = self.prompt[self.fed : self.fed + count]
        self.fed += count
        if count < len(self.prompt):
            self.generation.emit(Progress(self.fed, len(self.prompt)))
        return tokens

    def accept(self, token: int, vocab_size: int) -> None:
        """One sampled token: check it, turn it into text, end the row when it ends. Raises what plugins raise."""
        if not 0 <= token < vocab_size:
            raise SamplerError(f"the sampler chose token {token}, outside the vocabulary of {vocab_size}")
        if self.constraint is not None and not self.constraint.allows(token):
            raise SamplerError(f"the sampler chose token {token}, which the grammar does not allow")
        if token in self.stop_ids:
            self.finish(FinishReason.STOP)
            return
        if self.first_token is None:
            self.first_token = self.clock()
        self.produced += 1
        text = self.stops.push(self.detokenizer.push((token,)))
        if text or self.stops.matched is None:
            self.generation.emit(Delta(text, (token,), self.channel))
        if self.stops.matched is not None:
            self.finish(FinishReason.STOP)
            return
        if self.constraint is not None:
            self.constraint.advance(token)
            if self.constraint.finished:
                self.finish(FinishReason.STOP)
                return
        if self.produced >= self.max_tokens:
            self.finish(FinishReason.LENGTH)

    def finish(self, reason: FinishReason) -> None:
        """Show what was held back and end. A stop string that only the held text completes is honoured."""
        if self.stops.matched is None:
            text = self.stops.push(self.detokenizer.finish())
            if self.stops.matched is None:
                text += self.stops.finish()
            else:
                reason = FinishReason.STOP
            if text:
                self.generation.emit(Delta(text, (), self.channel))
        self.generation.emit(Done(reason, self.usage, self.timings()))

    def cancel(self, reason: str = "cancelled") -> None:
        """End as cancelled."""
        self.generation.emit(Cancelled(self.usage, reason))

    def fail(self, error: LatticeError) -> None:
        """End as failed."""
        self.generation.emit(Failed(error, self.usage))

    def timings(self) -> Timings:
        """Seconds since the request was submitted."""
        now = self.clock()
        started = now if self.started is None else self.started
        first = None if self.first_token is None else self.first_token - self.submitted
        return Timings(started - self.submitted, first, now - self.submitted)
