"""Who may use the API: the Host header, origins of web pages, API keys. Knows headers, no route but ``/health``."""

from __future__ import annotations

import hmac
import ipaddress
from typing import TYPE_CHECKING

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware

from lattice_openai.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from starlette.types import ASGIApp, Receive, Scope, Send

_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
_OPEN_ROUTES = ("/health",)
_SHOWN = 100


def is_loopback(address: str) -> bool:
    """Whether a bound IP address can be reached from this machine only."""
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def allowed_hosts(host: str, address: str, extra: Iterable[str]) -> frozenset[str] | None:
    """Names that the Host header may give, or None where every name may stand.

    On a loopback address only the machine's own names are let in: a web page whose name was made to resolve to 127.0.0.1
    reaches the port, but its requests carry that name. On other addresses the names are not known, so only a list that the
    operator gave is enforced.
    """
    names = [bare_host(name) for name in extra]
    if "*" in names or not (names or is_loopback(address)):
        return None
    return frozenset([*_LOOPBACK_NAMES, bare_host(host), bare_host(address), *names])


def bare_host(value: str) -> str:
    """A Host header's name in lower case, without port, brackets and trailing dot."""
    value = value.strip().lower()
    if value.startswith("["):
        return value[1:].partition("]")[0]
    name, colon, port = value.rpartition(":")
    if colon and ":" not in name and (port.isdecimal() or not port):
        value = name
    return value.rstrip(".")


class HostCheck:
    """Answers 403 to a request whose Host header names another machine.

    A request without the header passes: only programs can send one, and they can send any name.
    """

    def __init__(self, app: ASGIApp, hosts: frozenset[str]) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        given = Headers(scope=scope).get("host")
        if given is not None and bare_host(given) not in self._hosts:
            error = ApiError(
                403,
                "host_not_allowed",
                f"the Host header {given[:_SHOWN]!r} is not allowed here; use localhost, or start the server with"
                " --openai-allowed-host",
            )
            await error.response()(scope, receive, send)
            return
        await self._app(scope, receive, send)


class ApiKeyCheck:
    """Answers 401 to a request without one of the API keys; ``/health`` needs none."""

    def __init__(self, app: ASGIApp, keys: Iterable[bytes]) -> None:
        self._app = app
        self._keys = tuple(keys)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["path"] not in _OPEN_ROUTES and not self._knows(scope["headers"]):
            error = ApiError(
                401,
                "invalid_api_key",
                "an API key of this server is needed; send it as Authorization: Bearer KEY",
                headers={"www-authenticate": "Bearer"},
            )
            await error.response()(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _knows(self, headers: Iterable[tuple[bytes, bytes]]) -> bool:
        given = [value for name, value in headers if name == b"authorization"]
        if len(given) != 1:
            return False
        scheme, _, key = given[0].partition(b" ")
        if scheme.lower() != b"bearer":
            return False
        # Every key is compared, so that the time taken says nothing about which one is near.
        matches = [hmac.compare_digest(key.strip(), known) for known in self._keys]
        return any(matches)


def with_cors(app: ASGIApp, origins: Iterable[str]) -> ASGIApp:
    """Let web pages of ``origins`` use ``app``; without origins no CORS header is sent and browsers keep pages out."""
    allowed = list(origins)
    if not allowed:
        return app
    return CORSMiddleware(
        app,
        allow_origins=allowed,
        allow_methods=["GET", "POST"],
        allow_headers=["*"],
        expose_headers=["retry-after"],
        max_age=600,
    )
