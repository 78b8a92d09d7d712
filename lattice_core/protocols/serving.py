"""The engine as frontends see it, the frontends, and who watches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping
    from pathlib import Path

    from lattice_core.errors import LatticeError
    from lattice_core.protocols.text import Vocabulary
    from lattice_core.types import AdapterInfo, EngineStats, Event, GenerationRequest, Health, ModelInfo


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


class Observer(Protocol):
    """Receives engine events for telemetry, on a thread of its own."""

    def observe(self, name: str, fields: Mapping[str, Any]) -> None:
        """One event, such as ``generation_finished`` with its counts. Errors are counted, never raised into the engine."""
        ...
