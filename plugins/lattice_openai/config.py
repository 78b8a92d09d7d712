"""The server's settings, checked once at start. Knows options and files, no request."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import field, frozen

from lattice_core.errors import UsageError
from lattice_core.wire import RequestDefaults
from lattice_openai.plugin import OPTIONS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lattice_core.descriptors import Settings

API_KEY_VARIABLE = "LATTICE_OPENAI_API_KEY"
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/\s]+")


@frozen
class ServerConfig:
    """How the server listens, whom it lets in and what it allows. Times are in seconds, sizes in bytes."""

    host: str
    port: int
    drain: float
    max_body: int
    keepalive: float
    linger: float
    defaults: RequestDefaults
    cors_origins: tuple[str, ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    api_keys: tuple[bytes, ...] = field(default=(), repr=False)
    lora_dir: Path | None = None

    @classmethod
    def from_settings(cls, settings: Settings, environ: Mapping[str, str]) -> ServerConfig:
        """Read options and keys; raises ``UsageError`` for an origin, a key file or a directory that cannot be meant."""
        own: dict[str, Any] = {option.name: option.default for option in OPTIONS} | dict(settings.own)
        core = settings.core
        if not core["host"]:
            raise UsageError("--host is empty; give 127.0.0.1, or 0.0.0.0 for every interface", param="host")
        return cls(
            host=core["host"],
            port=core["port"],
            drain=core["drain-seconds"],
            max_body=own["max-body"],
            keepalive=own["keepalive"],
            linger=own["linger"],
            cors_origins=_origins(own["cors-origin"] or ()),
            allowed_hosts=tuple(own["allowed-host"] or ()),
            api_keys=_api_keys(own["api-key-file"], environ.get(API_KEY_VARIABLE, "")),
            lora_dir=_directory(own["lora-dir"]),
            defaults=RequestDefaults.from_settings(settings),
        )


def _origins(values: Iterable[str]) -> tuple[str, ...]:
    origins = tuple(values)
    for origin in origins:
        if origin != "*" and _ORIGIN.fullmatch(origin) is None:
            raise UsageError(
                f"--openai-cors-origin {origin}: not an origin; give scheme://host[:port] without a path, or *",
                param="openai-cors-origin",
            )
    return origins


def _directory(path: str | Path | None) -> Path | None:
    """The directory itself, without links, so that what lies below it can be compared."""
    if path is None:
        return None
    found = Path(path).expanduser().resolve()
    if not found.is_dir():
        raise UsageError(
            f"--openai-lora-dir {path} is no directory; give the one that holds the adapters", param="openai-lora-dir"
        )
    return found


def _api_keys(path: str | Path | None, variable: str) -> tuple[bytes, ...]:
    keys = [variable.strip()] if variable.strip() else []
    if path is not None:
        try:
            lines = Path(path).expanduser().read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            cause = error.strerror if isinstance(error, OSError) else "not UTF-8"
            raise UsageError(f"--openai-api-key-file {path} cannot be read: {cause}", param="openai-api-key-file") from error
        found = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
        if not found:
            raise UsageError(f"--openai-api-key-file {path} holds no key; write one key a line", param="openai-api-key-file")
        keys += found
    return tuple(key.encode() for key in keys)
