"""``POST /v1/chat/completions``: one request from its body to the last byte of its answer, or to its client's leaving.

Everything that can be refused is refused before status 200 is committed. Knows the engine by its protocol only.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import anyio.to_thread
from anyio import CapacityLimiter

from lattice_core.errors import ShuttingDownError
from lattice_core.types import Cancelled, Delta, Done, Failed
from lattice_openai.chat_request import parse_chat_request
from lattice_openai.chat_wire import Answer
from lattice_openai.disconnect import ClientLeftError, watch_client
from lattice_openai.errors import ApiError, from_lattice, internal_error
from lattice_openai.request_body import TOO_LARGE, read_json_object, refuse_body
from lattice_openai.sse import EventStream
from lattice_openai.telemetry import RECORD

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.types import Receive, Scope, Send

    from lattice_core.protocols import EngineAPI, Generation
    from lattice_core.types import GenerationRequest, Terminal
    from lattice_openai.chat_request import ChatRequest
    from lattice_openai.config import ServerConfig
    from lattice_openai.disconnect import Client
    from lattice_openai.in_flight import InFlight
    from lattice_openai.telemetry import RequestRecord

_LOG = logging.getLogger("lattice.openai")
_SUBMIT_THREADS = 4
_SHOWN_FIELDS = 10
_SHOWN_NAME = 60


class ChatCompletions:
    """The ASGI application of the route. To be made on the event loop that serves it."""

    def __init__(self, engine: EngineAPI, config: ServerConfig, in_flight: InFlight) -> None:
        self._engine = engine
        self._config = config
        self._in_flight = in_flight
        # A limiter of its own: submissions that wait for the tokenizer take no thread from anything else.
        self._limiter = CapacityLimiter(_SUBMIT_THREADS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; raises ``ApiError`` and ``LatticeError`` only before the response has begun."""
        record: RequestRecord = scope[RECORD]
        try:
            body = await read_json_object(scope, receive, limit=self._config.max_body)
            request = parse_chat_request(body, defaults=self._config.defaults)
            record.stream = request.stream
            _note_unknown(request.unknown)
            async with watch_client(receive) as client:
                await self._answer(request, client, record, send)
        except ClientLeftError:
            record.client_left = True
        except ApiError as error:
            if error.status != TOO_LARGE:
                raise
            await refuse_body(error, scope, receive, send)

    async def _answer(self, request: ChatRequest, client: Client, record: RequestRecord, send: Send) -> None:
        generation = await self._submit(request.generation, client)
        record.tokens = 0
        with self._in_flight.track(generation):
            client.when_gone(generation.cancel)
            answer = self._stream if request.stream else self._whole
            try:
                await answer(request, generation, client, record, send)
            finally:
                record.client_left = client.gone

    async def _submit(self, request: GenerationRequest, client: Client) -> Generation:
        """Submit on a thread. What a cancelled task submitted is cancelled too: the thread ends before the task does."""
        submitted: list[Generation] = []

        def submit() -> None:
            if not client.gone:
                submitted.append(self._engine.submit(request))

        try:
            await anyio.to_thread.run_sync(submit, limiter=self._limiter)
        except BaseException:
            for generation in submitted:
                generation.cancel()
            raise
        if not submitted:
            raise ClientLeftError
        return submitted[0]

    async def _stream(
        self, request: ChatRequest, generation: Generation, client: Client, record: RequestRecord, send: Send
    ) -> None:
        answer = Answer(request.answering(self._engine.model_id))
        async with EventStream(send, self._config.keepalive) as stream:
            await stream.event(answer.role_chunk())
            terminal: Terminal | None = None
            # A client that left is read for to the end: the terminal event says how many tokens were made.
            async for event in generation:
                if isinstance(event, Delta):
                    record.tokens = (record.tokens or 0) + len(event.token_ids)
                    if event.text and not client.gone:
                        await stream.event(answer.text_chunk(event.text))
                elif isinstance(event, (Done, Failed, Cancelled)):
                    terminal = event
                    record.tokens = event.usage.completion_tokens
            if isinstance(terminal, Done):
                await stream.event(answer.finish_chunk(terminal.finish_reason))
                if request.include_usage:
                    await stream.event(answer.usage_chunk(terminal.usage))
            elif not client.gone:
                await stream.event(self._failure(terminal).envelope())
            client.answered()
            await stream.finish()

    async def _whole(
        self, request: ChatRequest, generation: Generation, client: Client, record: RequestRecord, send: Send
    ) -> None:
        texts: list[str] = []
        terminal: Terminal | None = None
        async for event in generation:
            if isinstance(event, Delta):
                record.tokens = (record.tokens or 0) + len(event.token_ids)
                texts.append(event.text)
            elif isinstance(event, (Done, Failed, Cancelled)):
                terminal = event
                record.tokens = event.usage.completion_tokens
        if client.gone:
            raise ClientLeftError
        if not isinstance(terminal, Done):
            raise self._failure(terminal)
        body = Answer(request.answering(self._engine.model_id)).completion(
            "".join(texts), terminal.finish_reason, terminal.usage
        )
        client.answered()
        await _send_json(send, body)

    def _failure(self, terminal: Failed | Cancelled | None) -> ApiError:
        if isinstance(terminal, Failed):
            return from_lattice(terminal.error)
        if self._in_flight.closing:
            return from_lattice(ShuttingDownError("the request was cancelled at the end of the drain"))
        if terminal is None:
            _LOG.error("a generation ended without a terminal event")
            return internal_error()
        return ApiError(503, "cancelled", f"the request was cancelled: {terminal.reason}")


def _note_unknown(names: tuple[str, ...]) -> None:
    if names:
        # ascii() keeps a client from writing control characters into the log.
        listed = ", ".join(ascii(name[:_SHOWN_NAME])[1:-1] for name in names[:_SHOWN_FIELDS])
        more = f" and {len(names) - _SHOWN_FIELDS} more" if len(names) > _SHOWN_FIELDS else ""
        _LOG.info("request fields that are not known here were ignored: %s%s", listed, more)


async def _send_json(send: Send, body: Mapping[str, Any]) -> None:
    data = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(data)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": data, "more_body": False})
