"""Notices that a client left while its answer is being made. Knows ASGI's ``receive``, nothing of engines."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from starlette.types import Receive


class ClientLeftError(Exception):
    """The client closed the connection before its request was complete."""


class Client:
    """The other end of one request, once its body has been read."""

    def __init__(self) -> None:
        self.gone = False
        self._answered = False
        self._callbacks: list[Callable[[], None]] = []

    def when_gone(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` on the event loop when the client leaves; at once if it already has."""
        if self.gone:
            callback()
        else:
            self._callbacks.append(callback)

    def answered(self) -> None:
        """From here on the end of the connection is the normal one. Call it before the last piece is sent."""
        self._answered = True

    def leave(self) -> None:
        """The connection has ended."""
        if self._answered:
            return
        self.gone = True
        for callback in self._callbacks:
            callback()


@asynccontextmanager
async def watch_client(receive: Receive) -> AsyncIterator[Client]:
    """Wait for ``http.disconnect`` beside the work of the ``async with`` block.

    A server says so only to who awaits ``receive``; asking whether it has arrived, or waiting for a write to fail, notices
    nothing while a prompt is queued or prefilled.
    """
    client = Client()

    async def wait() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        client.leave()

    task = asyncio.create_task(wait(), name="lattice-openai-client")
    try:
        yield client
    finally:
        task.cancel()
        await asyncio.wait({task})
