"""One answer: asked for, shown as it comes, and what became of it. Knows the engine; knows nothing of how lines are read."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from attrs import frozen

from lattice_core.errors import ContextLengthExceededError, LatticeError
from lattice_core.types import Cancelled, Delta, Done, Failed, FinishReason, GenerationRequest
from lattice_repl.interrupt import Interrupt

if TYPE_CHECKING:
    from lattice_core.protocols import EngineAPI, Generation
    from lattice_repl.adapter_choice import AdapterChoice
    from lattice_repl.conversation import Conversation
    from lattice_repl.generation_settings import GenerationSettings
    from lattice_repl.screen import Screen


@frozen
class Ended:
    """How an answer ended, and with which adapter.

    ``error`` is set where it failed; ``forgotten`` oldest turns did not fit the context.
    """

    text: str = ""
    forgotten: int = 0
    done: Done | None = None
    adapter: str | None = None
    cancelled: Cancelled | None = None
    error: LatticeError | None = None


class Answerer:
    """Asks the engine and shows what it says."""

    def __init__(self, engine: EngineAPI, screen: Screen, choice: AdapterChoice) -> None:
        self._engine = engine
        self._screen = screen
        self._choice = choice
        self._lock = threading.Lock()
        self._current: Generation | None = None
        self._over = False

    def cancel(self) -> None:
        """End the answer that is made now, and every later one. May be called from any thread."""
        with self._lock:
            self._over = True
            if self._current is not None:
                self._current.cancel()

    def ask(self, conversation: Conversation, text: str, settings: GenerationSettings) -> Ended:
        """Show the answer to ``text``. Raises ``BrokenPipeError`` when nobody reads it; it is then cancelled."""
        with Interrupt() as interrupt:
            try:
                generation, forgotten = self._submit(conversation, text, settings)
            except LatticeError as error:
                return Ended(error=error)
            interrupt.attach(generation.cancel)
            with self._lock:
                self._current = generation
                if self._over:
                    generation.cancel()
            try:
                return self._shown(generation, forgotten)
            except BaseException:
                generation.cancel()
                raise
            finally:
                with self._lock:
                    self._current = None

    def _submit(self, conversation: Conversation, text: str, settings: GenerationSettings) -> tuple[Generation, int]:
        """The generation, and how many of the oldest turns had to be left out for it."""
        without = 0
        while True:
            request = GenerationRequest(
                messages=conversation.messages(text, without),
                adapter=self._choice.adapter,
                max_tokens=settings.max_tokens,
                sampling=settings.sampling,
            )
            try:
                return self._engine.submit(request), without
            except ContextLengthExceededError:
                if without >= len(conversation.turns):
                    raise
                without += 1

    def _shown(self, generation: Generation, forgotten: int) -> Ended:
        pieces: list[str] = []
        for event in generation:
            if isinstance(event, Delta):
                pieces.append(event.text)
                self._screen.show(event.text)
            elif isinstance(event, Done | Cancelled | Failed):
                if pieces or isinstance(event, Done):
                    self._screen.show("\n")
                text = "".join(pieces)
                if isinstance(event, Done):
                    return Ended(text, forgotten, done=event, adapter=generation.adapter)
                if isinstance(event, Cancelled):
                    return Ended(text, forgotten, cancelled=event)
                return Ended(text, forgotten, error=event.error)
        return Ended("".join(pieces), forgotten, error=LatticeError("the engine ended the answer without saying why"))


def statistics(done: Done, device: str, adapter: str | None) -> str:
    """The figures of an answer as one line; ``adapter`` made it together with the model."""
    usage, seconds = done.usage, done.timings.total
    speed = usage.completion_tokens / seconds if seconds > 0 else 0.0
    return (
        f"[{usage.prompt_tokens} prompt + {usage.completion_tokens} gen in {seconds * 1000:.1f}ms"
        f" = {speed:.1f} tok/s | {device}{f' + {adapter}' if adapter else ''}]"
    )


def why_cut(done: Done, context: int) -> str | None:
    """What ended an answer that was not finished, and the way out; None for a whole one."""
    if done.finish_reason is not FinishReason.LENGTH:
        return None
    if done.usage.total_tokens >= context:
        return f"[cut: the context of {context} tokens is full; /reset begins a new conversation]"
    return f"[cut at {done.usage.completion_tokens} tokens; /set max-tokens N allows more]"
