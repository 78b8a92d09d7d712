"""Telemetry lines on standard output: ``@@lattice`` and a JSON object, one whole line at a time.

Programs that start the server read them. Knows nothing of routes; a slow or vanished reader never delays or ends the server.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import select
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from attrs import define, field

from lattice_openai.errors import ApiError, internal_error

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_LOG = logging.getLogger("lattice.openai")
_BOUND = 10_000
_LONGEST_ROUTE = 200
_ERRORS = 400
_DROPPED = 500
"""The status of a request whose response the end of the server prevented."""

CLIENT_LEFT = 499
"""The status in telemetry of a request whose client did not wait for the end of the answer."""

RECORD = "lattice.record"
"""Where an ASGI scope holds its ``RequestRecord``."""


class TelemetryWriter:
    """Writes lines to a file descriptor from a thread of its own; ``None`` writes nothing.

    ``dropped`` counts lines that the reader was too slow for. When the reader goes away, the rest is discarded.
    """

    def __init__(self, fd: int | None) -> None:
        self._fd = fd
        self._lines: queue.Queue[bytes | None] = queue.Queue(_BOUND)
        self.dropped = 0
        self._thread = threading.Thread(target=self._run, name="lattice-openai-telemetry", daemon=True)
        self._thread.start()

    def emit(self, ev: str, **fields: Any) -> None:
        """Queue one line; never blocks and never raises."""
        line = json.dumps({"ev": ev, **fields}, separators=(",", ":"))
        try:
            self._lines.put_nowait(f"@@lattice {line}\n".encode())
        except queue.Full:
            if self.dropped == 0:
                _LOG.warning("standard output is not read; telemetry lines are dropped")
            self.dropped += 1

    def close(self, timeout: float = 2.0) -> None:
        """Write what is queued, for at most ``timeout`` seconds."""
        try:
            self._lines.put(None, timeout=timeout)
        except queue.Full:
            return
        self._thread.join(timeout)

    def _run(self) -> None:
        while (line := self._lines.get()) is not None:
            try:
                self._write(line)
            except OSError:
                self._fd = None

    def _write(self, line: bytes) -> None:
        # Not through sys.stdout: what its buffer keeps after a broken pipe fails once more at exit.
        while line and self._fd is not None:
            try:
                line = line[os.write(self._fd, line) :]
            except BlockingIOError:
                select.select([], [self._fd], [], 1.0)


def stdout_fd() -> int | None:
    """The descriptor of standard output, or None where there is none."""
    try:
        return sys.stdout.fileno() if sys.stdout is not None else None
    except (OSError, ValueError):
        return None


@define
class RequestRecord:
    """What one telemetry line says of a request.

    ``tokens`` are completion tokens; the line has null for routes that make none and for responses of an error status.
    """

    method: str
    route: str
    status: int | None = None
    tokens: int | None = None
    stream: bool = False
    client_left: bool = False
    started: float = field(factory=time.monotonic)


class RequestTelemetry:
    """The outermost ASGI layer: one ``http_request`` line after every response, and the last resort for faults."""

    def __init__(self, app: ASGIApp, writer: TelemetryWriter) -> None:
        self._app = app
        self._writer = writer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; never raises for a fault of the application."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        record = RequestRecord(scope["method"], scope["path"][:_LONGEST_ROUTE])
        scope[RECORD] = record

        async def noting_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                record.status = message["status"]
            await send(message)

        try:
            try:
                await self._app(scope, receive, noting_send)
            except ApiError as error:
                await error.response()(scope, receive, noting_send)
            except Exception:  # noqa: BLE001  # the last door: logged, and the server lives on
                _LOG.exception("%s %s failed", record.method, record.route)
                if record.status is None:
                    await internal_error().response()(scope, receive, noting_send)
        finally:
            self._emit(record)

    def _emit(self, record: RequestRecord) -> None:
        status = CLIENT_LEFT if record.client_left else record.status or _DROPPED
        self._writer.emit(
            "http_request",
            method=record.method,
            route=record.route,
            status=status,
            tokens=record.tokens if status < _ERRORS or status == CLIENT_LEFT else None,
            dur_ms=round((time.monotonic() - record.started) * 1000, 3),
            stream=record.stream,
        )
