"""Registers the frontend ``openai``. Holds its descriptor and options only; FastAPI and uvicorn are imported by the factory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lattice_core import hookimpl
from lattice_core.descriptors import FrontendSpec, Option

if TYPE_CHECKING:
    from collections.abc import Iterable

OPTIONS = (
    Option(
        "max-body",
        "largest request body; a larger one is answered with 413",
        type="bytes",
        default=1024 * 1024,
        minimum=1024,
    ),
    Option(
        "keepalive",
        "seconds of silence in a stream after which a comment line is sent; 0 sends none",
        type="float",
        default=15.0,
        minimum=0,
        metavar="SECONDS",
    ),
    Option(
        "cors-origin",
        "origin of web pages that may use the API, such as https://app.example; * allows every page",
        default=(),
        repeatable=True,
        metavar="ORIGIN",
    ),
    Option(
        "allowed-host",
        "further name that the Host header may give; * switches the check off",
        default=(),
        repeatable=True,
        metavar="HOST",
    ),
    Option(
        "api-key-file",
        "file of API keys, one a line; every route but /health then wants one (or set LATTICE_OPENAI_API_KEY)",
        type="path",
        metavar="FILE",
    ),
    Option(
        "lora-dir",
        "directory below which clients may load adapters, and so unload them; without it they may not",
        type="path",
        metavar="DIR",
    ),
    Option(
        "linger",
        "seconds for which /health says 503 after the engine died, before the process ends",
        type="float",
        default=1.0,
        minimum=0,
        maximum=60,
        metavar="SECONDS",
    ),
)


@hookimpl
def lattice_frontends() -> Iterable[FrontendSpec]:
    """The frontend ``openai``."""
    yield FrontendSpec(
        name="openai",
        summary="HTTP server with the OpenAI chat API",
        factory="lattice_openai.server:create",
        requires=("fastapi", "uvicorn"),
        install="pip install lattice-engine",
        options=OPTIONS,
    )
