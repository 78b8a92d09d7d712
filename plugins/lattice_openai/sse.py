"""Server-sent events over ASGI (the ``text/event-stream`` format of the HTML standard). Knows nothing of what they carry."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from starlette.types import Send

_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]
_KEEPALIVE = b": keep-alive\n"
# Line ends of Unicode that JSON leaves alone: clients that split text into lines would cut an event there.
_LINE_ENDS = {0x85: "\\u0085", 0x2028: "\\u2028", 0x2029: "\\u2029"}


def sse_event(data: Mapping[str, Any]) -> bytes:
    """One event with ``data`` as a line of JSON."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":")).translate(_LINE_ENDS)
    return f"data: {text}\n\n".encode()


class EventStream:
    """A response of events: entering it commits status 200, ``finish`` ends it.

    After ``keepalive`` seconds of silence a comment line is sent, which tells proxies that the connection lives. It ends in
    one newline, not two: clients that dispatch at every empty line would see an empty event. 0 sends none.
    """

    def __init__(self, send: Send, keepalive: float) -> None:
        self._send = send
        self._keepalive = keepalive
        self._last = time.monotonic()
        self._beat: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self._send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        self._last = time.monotonic()
        if self._keepalive > 0:
            self._beat = asyncio.create_task(self._keep_alive(), name="lattice-openai-keepalive")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stop_beat()

    async def event(self, data: Mapping[str, Any]) -> None:
        """Send one event; waits while the client's buffers are full."""
        await self._send({"type": "http.response.body", "body": sse_event(data), "more_body": True})
        self._last = time.monotonic()

    async def finish(self) -> None:
        """Send ``data: [DONE]`` and end the response."""
        await self._stop_beat()
        await self._send({"type": "http.response.body", "body": b"data: [DONE]\n\n", "more_body": False})

    async def _keep_alive(self) -> None:
        while True:
            rest = self._last + self._keepalive - time.monotonic()
            if rest > 0:
                await asyncio.sleep(rest)
            else:
                await self._send({"type": "http.response.body", "body": _KEEPALIVE, "more_body": True})
                self._last = time.monotonic()

    async def _stop_beat(self) -> None:
        if self._beat is not None:
            beat, self._beat = self._beat, None
            beat.cancel()
            await asyncio.wait({beat})
