"""A submitted request as its two ends see it: the device thread puts events in, one reader takes them out.

Owns the order and the bounds of one request's events. Knows nothing of models or transports.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from typing import TYPE_CHECKING, Self

from attrs import evolve

from lattice_core.types import Cancelled, Delta, Done, Failed, Progress

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from types import TracebackType

    from lattice_core.types import Event, Terminal

_TERMINAL = (Done, Cancelled, Failed)
_COALESCE_AFTER = 64
"""Undelivered events after which further deltas join the last one instead of lengthening the queue."""


class Generation:
    """The events of one request, for one reader. As a context manager it cancels on leaving unless it has ended."""

    def __init__(self, number: int, prompt_tokens: int, wake: Callable[[], None], adapter: str | None = None) -> None:
        """``wake`` tells the device thread that this generation was cancelled or read."""
        self.id = number
        self.prompt_tokens = prompt_tokens
        self.adapter = adapter
        self._wake = wake
        self._condition = threading.Condition()
        self._events: deque[Event] = deque()
        self._undelivered = 0
        self.paused = False
        """Set by the scheduler while the reader is too far behind; emptying the queue then wakes the device thread."""
        self._cancelled = False
        self._terminal: Terminal | None = None
        self._listener: Callable[[], None] | None = None

    # ------------------------------------------------------------------------------------ the device thread's end

    def emit(self, event: Event) -> None:
        """Queue an event; after a terminal one everything is dropped, so that there is exactly one."""
        with self._condition:
            if self._terminal is not None:
                return
            if isinstance(event, _TERMINAL):
                self._terminal = event
            self._append(event)
            self._condition.notify_all()
            listener = self._listener
        if listener is not None:
            listener()

    def _append(self, event: Event) -> None:
        last = self._events[-1] if self._events else None
        if isinstance(event, Progress) and isinstance(last, Progress):
            self._events[-1] = event
            return
        if isinstance(event, Delta):
            self._undelivered += max(1, len(event.token_ids))
            if (
                len(self._events) >= _COALESCE_AFTER
                and isinstance(last, Delta)
                and (last.channel, last.index) == (event.channel, event.index)
            ):
                self._events[-1] = evolve(last, text=last.text + event.text, token_ids=last.token_ids + event.token_ids)
                return
        self._events.append(event)

    @property
    def cancelled(self) -> bool:
        """Whether somebody asked to stop."""
        return self._cancelled

    @property
    def undelivered(self) -> int:
        """Tokens that were produced and not taken out yet."""
        return self._undelivered

    @property
    def terminal(self) -> Terminal | None:
        """The terminal event, once there is one."""
        return self._terminal

    # ------------------------------------------------------------------------------------ the reader's end

    def cancel(self) -> None:
        """Ask to stop; returns at once."""
        if not self._cancelled:
            self._cancelled = True
            self._wake()

    def next(self, timeout: float | None = None) -> Event | None:
        """The next event; None after the terminal one, or when ``timeout`` seconds brought nothing."""
        with self._condition:
            self._condition.wait_for(lambda: self._events or self._terminal is not None, timeout)
            return self._take()

    def _take(self) -> Event | None:
        if not self._events:
            return None
        event = self._events.popleft()
        if isinstance(event, Delta):
            self._undelivered -= max(1, len(event.token_ids))
            if self.paused and self._undelivered == 0:
                self._wake()
        return event

    def __iter__(self) -> Iterator[Event]:
        while (event := self.next()) is not None:
            yield event

    async def __aiter__(self) -> AsyncIterator[Event]:
        loop, ready = asyncio.get_running_loop(), asyncio.Event()

        def listen() -> None:
            try:
                loop.call_soon_threadsafe(ready.set)
            except RuntimeError:  # the loop was closed with its reader; the cancel that follows ends the row
                self.cancel()

        with self._condition:
            self._listener = listen
        try:
            while True:
                with self._condition:
                    event, ended = self._take(), self._terminal is not None
                    if event is None:
                        ready.clear()
                if event is not None:
                    yield event
                elif ended:
                    return
                else:
                    await ready.wait()
        finally:
            with self._condition:
                self._listener = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._terminal is None:
            self.cancel()
