"""``/v1/lora``: the resident adapters, and loading and unloading them while requests go on.

A client that loads names a file of the server, so both changes are off unless the operator names a directory for them, and
nothing outside it is opened. Knows the engine by its protocol only.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import anyio.to_thread
from anyio import CapacityLimiter
from starlette.responses import JSONResponse

from lattice_core.errors import AdapterError, RequestError
from lattice_core.wire import get_text, shown
from lattice_openai.disconnect import ClientLeftError
from lattice_openai.errors import ApiError
from lattice_openai.request_body import TOO_LARGE, read_json_object, refuse_body
from lattice_openai.telemetry import RECORD

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from starlette.types import Receive, Scope, Send

    from lattice_core.protocols import EngineAPI
    from lattice_core.types import AdapterInfo
    from lattice_openai.config import ServerConfig

LORA_ROUTE = "/v1/lora"
LOAD_ROUTE = "/v1/lora/load"
UNLOAD_ROUTE = "/v1/lora/unload"

_CHANGE_THREADS = 2


def adapter_object(info: AdapterInfo) -> dict[str, Any]:
    """An adapter as clients see it. ``bytes`` are those that it takes on the device."""
    return {
        "id": info.name,
        "object": "lora",
        "format": info.format,
        "bytes": info.nbytes,
        "fingerprint": info.fingerprint,
        "default": info.default,
        "requests": info.requests,
        "status": "unloading" if info.unloading else "resident",
    }


def adapter_list(engine: EngineAPI) -> dict[str, Any]:
    """The body of ``GET /v1/lora``."""
    return {"object": "list", "data": [adapter_object(info) for info in engine.adapters()]}


class _Change:
    """The ASGI application of a route that changes which adapters are resident. To be made on the event loop that serves it."""

    def __init__(self, engine: EngineAPI, config: ServerConfig) -> None:
        self._engine = engine
        self._root = config.lora_dir
        self._max_body = config.max_body
        # A limiter of its own: a change that waits for the device takes no thread from anything else.
        self._limiter = CapacityLimiter(_CHANGE_THREADS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; raises ``ApiError`` and ``LatticeError`` only before the response has begun."""
        try:
            body = await read_json_object(scope, receive, limit=self._max_body)
            answer = await anyio.to_thread.run_sync(self._changed, body, _allowed(self._root), limiter=self._limiter)
        except ClientLeftError:
            scope[RECORD].client_left = True
        except ApiError as error:
            if error.status != TOO_LARGE:
                raise
            await refuse_body(error, scope, receive, send)
        else:
            await JSONResponse(answer)(scope, receive, send)

    def _changed(self, body: Mapping[str, Any], root: Path) -> dict[str, Any]:
        raise NotImplementedError


class LoadAdapter(_Change):
    """``POST /v1/lora/load``: ``{"id": NAME, "path": PATH}``, the path below the operator's directory."""

    def _changed(self, body: Mapping[str, Any], root: Path) -> dict[str, Any]:
        name, path = _texts(body, "id", "path")
        inside = _inside(root, path)
        try:
            return adapter_object(self._engine.load_adapter(name, inside))
        except AdapterError as error:
            # Where the directory lies is not for clients to know.
            error.message = error.message.replace(f"{root}/", "")
            raise


class UnloadAdapter(_Change):
    """``POST /v1/lora/unload``: ``{"id": NAME}``."""

    def _changed(self, body: Mapping[str, Any], _root: Path) -> dict[str, Any]:
        (name,) = _texts(body, "id")
        requests = self._engine.unload_adapter(name)
        return {"id": name, "object": "lora", "requests": requests, "status": "unloading" if requests else "unloaded"}


def _allowed(root: Path | None) -> Path:
    if root is None:
        raise _not_allowed(
            "adapters are not loaded or unloaded over HTTP here; start the server with --openai-lora-dir DIR to allow it, or"
            " load them at start with --lora NAME=PATH"
        )
    return root


def _inside(root: Path, path: str) -> Path:
    """The file or directory that ``path`` stands for below ``root``. Raises ``ApiError`` for one that leads out of it.

    Links are followed, and must end below ``root`` too, also those that lie directly in a directory that is named.
    """
    pure = PurePosixPath(path)
    if "\0" in path or pure.is_absolute() or ".." in pure.parts or path.startswith("~"):
        raise _not_allowed(f"`path` {shown(path)} must be relative to --openai-lora-dir, without `..`", param="path")
    outside = _not_allowed(f"`path` {shown(path)} leads out of --openai-lora-dir", param="path")
    try:
        found = (root / pure).resolve()
        if not found.is_relative_to(root):
            raise outside
        entries = list(found.iterdir()) if found.is_dir() else []
        if not all(entry.resolve().is_relative_to(root) for entry in entries):
            raise outside
    except (OSError, RuntimeError) as error:  # no permission, a name that is too long, links in a circle
        raise AdapterError(f"adapter {shown(path)} cannot be read", param="path") from error
    return found


def _not_allowed(message: str, *, param: str | None = None) -> ApiError:
    return ApiError(403, "lora_changes_not_allowed", message, param=param)


def _texts(body: Mapping[str, Any], *names: str) -> list[str]:
    """The members ``names``, strings that are not empty; no other may stand beside them."""
    texts = []
    for name in names:
        text = get_text(body, name)
        if not text:
            raise RequestError(f"`{name}` is missing; send a string", param=name)
        texts.append(text)
    for name in body:
        if name not in names:
            raise RequestError(f"{shown(name)} is no field of this route; its fields are {', '.join(names)}")
    return texts
