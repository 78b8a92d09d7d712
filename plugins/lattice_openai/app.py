"""The ASGI application: routes, and the layers around them in their order. Knows no socket and no process."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from fastapi.responses import JSONResponse, PlainTextResponse
from starlette.exceptions import HTTPException

from lattice_core.errors import LatticeError, UnknownModelError
from lattice_core.types import MODEL_ALIAS
from lattice_core.wire import shown
from lattice_openai.chat import ChatCompletions
from lattice_openai.errors import ApiError, from_lattice, internal_error
from lattice_openai.lora import LOAD_ROUTE, LORA_ROUTE, UNLOAD_ROUTE, LoadAdapter, UnloadAdapter, adapter_list
from lattice_openai.security import ApiKeyCheck, HostCheck, with_cors
from lattice_openai.telemetry import RequestTelemetry

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp

    from lattice_core.protocols import EngineAPI
    from lattice_openai.config import ServerConfig
    from lattice_openai.in_flight import InFlight
    from lattice_openai.telemetry import TelemetryWriter

CHAT_ROUTE = "/v1/chat/completions"
MODELS_ROUTE = "/v1/models"
HEALTH_ROUTE = "/health"


def build_app(
    engine: EngineAPI,
    config: ServerConfig,
    *,
    hosts: frozenset[str] | None,
    in_flight: InFlight,
    telemetry: TelemetryWriter,
) -> ASGIApp:
    """The whole application; to be called on the event loop that serves it.

    ``hosts`` are the names that the Host header may give, None for any. From the outside in: telemetry, Host check, CORS
    (so that a web page can read a 401 too), API key, routes.
    """
    app: ASGIApp = _routes(engine, config, in_flight)
    if config.api_keys:
        app = ApiKeyCheck(app, config.api_keys)
    app = with_cors(app, config.cors_origins)
    if hosts is not None:
        app = HostCheck(app, hosts)
    return RequestTelemetry(app, telemetry)


def _routes(engine: EngineAPI, config: ServerConfig, in_flight: InFlight) -> FastAPI:
    # No documentation pages: they load scripts from elsewhere, and every unknown route must answer in the envelope.
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    app.add_exception_handler(ApiError, _api_error)
    app.add_exception_handler(LatticeError, _lattice_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _fault)
    models_served = _Models(engine)

    @app.api_route("/", methods=["GET", "HEAD"])
    async def root() -> Response:
        endpoints = [CHAT_ROUTE, MODELS_ROUTE, LORA_ROUTE, LOAD_ROUTE, UNLOAD_ROUTE, HEALTH_ROUTE]
        return JSONResponse({"name": "lattice", "object": "engine", "endpoints": endpoints})

    @app.api_route(HEALTH_ROUTE, methods=["GET", "HEAD"])
    async def health() -> Response:
        state = engine.health()
        if state.ok:
            return PlainTextResponse("ok")
        return PlainTextResponse(": ".join(filter(None, [state.status, state.message])), status_code=503)

    @app.get(MODELS_ROUTE)
    async def models() -> Response:
        return JSONResponse({"object": "list", "data": models_served.all()})

    @app.get(MODELS_ROUTE + "/{model:path}")
    async def model(model: str) -> Response:
        return JSONResponse(models_served.one(model))

    @app.get(LORA_ROUTE)
    async def adapters() -> Response:
        return JSONResponse(adapter_list(engine))

    # Plain ASGI applications, so that the disconnect of a client can be awaited.
    posts: dict[str, Any] = {
        CHAT_ROUTE: ChatCompletions(engine, config, in_flight),
        LOAD_ROUTE: LoadAdapter(engine, config),
        UNLOAD_ROUTE: UnloadAdapter(engine, config),
    }
    for route, application in posts.items():
        app.router.add_route(route, application, methods=["POST"])
    return app


class _Models:
    """The model and the adapters as ``/v1/models`` shows them. ``created`` of all is when the server started."""

    def __init__(self, engine: EngineAPI) -> None:
        self._engine = engine
        self._started = int(time.time())

    def all(self) -> list[dict[str, Any]]:
        """The model first."""
        base = self._engine.model_id
        names = [info.name for info in self._engine.adapters() if not info.unloading]
        return [self._object(base), *(self._object(name) | {"parent": base} for name in names)]

    def one(self, name: str) -> dict[str, Any]:
        """The one called ``name``. Raises ``UnknownModelError``."""
        found = {model["id"]: model for model in self.all()}
        model = found.get(self._engine.model_id if name == MODEL_ALIAS else name)
        if model is None:
            raise UnknownModelError(f"the model {shown(name)} is not served here; served: {', '.join(found)}", param="model")
        return model

    def _object(self, name: str) -> dict[str, Any]:
        return {"id": name, "object": "model", "created": self._started, "owned_by": "lattice"}


async def _api_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)  # noqa: S101  # narrows what Starlette types as Exception
    return error.response()


async def _lattice_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, LatticeError)  # noqa: S101  # narrows what Starlette types as Exception
    return from_lattice(error).response()


async def _http_error(request: Request, error: Exception) -> Response:
    """The router's own answers: no such route, no such method."""
    assert isinstance(error, HTTPException)  # noqa: S101  # narrows what Starlette types as Exception
    where = f"{request.method} {request.url.path[:100]}"
    code, message = {
        404: ("not_found", f"there is no route {where}; GET / lists the routes"),
        405: ("method_not_allowed", f"{where} is not allowed"),
    }.get(error.status_code, ("http_error", str(error.detail)))
    return ApiError(error.status_code, code, message, headers=error.headers).response()


async def _fault(_request: Request, _error: Exception) -> Response:
    """The answer to a fault that nobody foresaw; it is logged where it arrives in the end."""
    return internal_error().response()
