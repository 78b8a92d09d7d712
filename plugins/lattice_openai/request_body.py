"""Takes a request's body off the wire: media type, size, pace, JSON. Knows nothing of what the JSON means."""

from __future__ import annotations

import asyncio
from email.message import Message
from typing import TYPE_CHECKING, Any

from starlette.datastructures import Headers

from lattice_core.wire import JSONSyntaxError, load_json
from lattice_openai.disconnect import ClientLeftError
from lattice_openai.errors import ApiError

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

TOO_LARGE = 413
"""The status of an answer that is sent while the client is still sending; ``refuse_body`` sends it."""

IDLE_SECONDS = 30.0
"""How long a client may pause inside a body."""

_LINGER_BYTES = 16 * 1024 * 1024
_LINGER_SECONDS = 2.0


async def read_json_object(scope: Scope, receive: Receive, *, limit: int, idle: float = IDLE_SECONDS) -> dict[str, Any]:
    """The JSON object in the body, at most ``limit`` bytes.

    Raises ``ApiError``: 415 before anything is read, 413 before more than ``limit`` bytes are held, 408 when the client
    pauses for ``idle`` seconds, 400 for what is no JSON object. Raises ``ClientLeftError`` when the client leaves.
    """
    headers = Headers(scope=scope)
    _check_media_type(headers)
    body = await _read(headers, receive, limit, idle)
    try:
        value = load_json(body)
    except JSONSyntaxError as error:
        raise ApiError(400, "invalid_request_body", f"the body is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise ApiError(400, "invalid_request_body", "the body must be a JSON object")
    return value


async def refuse_body(error: ApiError, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with ``error`` while the client is still sending, then read on for a moment before the connection closes.

    Closing with unread bytes in the buffer resets the connection, and the client would lose the answer.
    """

    async def hold_back_the_end(message: Any) -> None:
        if message["type"] == "http.response.body":
            message = {**message, "more_body": True}
        await send(message)

    error.headers["connection"] = "close"
    await error.response()(scope, receive, hold_back_the_end)
    left = _LINGER_BYTES
    try:
        async with asyncio.timeout(_LINGER_SECONDS):
            while left > 0:
                message = await receive()
                if message["type"] != "http.request" or not message.get("more_body", False):
                    break
                left -= len(message.get("body", b""))
    except TimeoutError:
        pass
    await send({"type": "http.response.body", "body": b"", "more_body": False})


def _check_media_type(headers: Headers) -> None:
    given = headers.get("content-type", "")
    parsed = Message()
    parsed["content-type"] = given
    kind = parsed.get_content_type() if given else ""
    charset = (parsed.get_content_charset() or "utf-8").lower()
    encoding = headers.get("content-encoding", "identity").lower()
    if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        what = f"content-type {given[:80]!r}" if given else "a request without content-type"
        raise ApiError(415, "unsupported_media_type", f"{what} is not supported; send application/json")
    if charset not in {"utf-8", "utf8", "us-ascii"}:
        raise ApiError(415, "unsupported_media_type", f"charset {charset[:40]!r} is not supported; send UTF-8")
    if encoding != "identity":
        raise ApiError(
            415, "unsupported_media_type", f"content-encoding {encoding[:40]!r} is not supported; send the body as it is"
        )


async def _read(headers: Headers, receive: Receive, limit: int, idle: float) -> bytes:
    too_large = ApiError(TOO_LARGE, "request_body_too_large", f"the request body is larger than {limit} bytes, the limit here")
    announced = headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > limit:
        raise too_large
    body = bytearray()
    while True:
        try:
            async with asyncio.timeout(idle):
                message = await receive()
        except TimeoutError:
            raise ApiError(
                408,
                "request_timeout",
                f"no more of the request body came for {idle:g} seconds",
                headers={"connection": "close"},
            ) from None
        if message["type"] == "http.disconnect":
            raise ClientLeftError
        body += message.get("body", b"")
        if len(body) > limit:
            raise too_large
        if not message.get("more_body", False):
            return bytes(body)
