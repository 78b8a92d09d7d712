"""Errors as HTTP clients see them: status, envelope and headers. Knows the tree of ``lattice_core.errors``, no route.

The envelope is OpenAI's: ``{"error": {"message", "type", "code", "param"}}``. Below status 500 the message says what to
change; from 500 on it is a fixed sentence, and the cause goes to the log.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse

from lattice_core.errors import EngineDiedError, RequestError, ServerBusyError, StepError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.responses import Response

    from lattice_core.errors import LatticeError

_LOG = logging.getLogger("lattice.openai")
_SERVER_ERROR = 500

_PUBLIC = {
    "server_busy": "the server has as many requests queued as it may; try again in a moment",
    "shutting_down": "the server is shutting down: the request was refused, or its answer cut off",
    "engine_died": "the engine has died; the server is about to end",
    "model_load_failed": "the model could not be loaded",
    "blocked_constraint": "the constraint on the output allows no token here",
}
_GENERIC = "the request failed inside the server; its log has the cause"

_WIRE_NAMES = {"grammar": "response_format"}
"""Fields of a generation request that stand under another name on the wire."""

_FIELD_CODES = {
    "messages": "invalid_messages",
    "messages.role": "invalid_role",
    "max_tokens": "invalid_max_tokens",
    "max_completion_tokens": "invalid_max_tokens",
    "temperature": "invalid_temperature",
    "top_p": "invalid_top_p",
    "top_k": "invalid_top_k",
    "repetition_penalty": "invalid_repetition_penalty",
    "seed": "invalid_seed",
    "stop": "invalid_stop",
}
"""Codes of wrong values, by the field without indexes; a member without its own has that of the whole."""

_INDEX = re.compile(r"\[\d+\]")


class ApiError(Exception):
    """An answer with an error status. ``param`` names the field at fault, in the notation of the request's JSON."""

    def __init__(
        self, status: int, code: str, message: str, *, param: str | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.param = param
        self.headers = dict(headers or {})

    def envelope(self) -> dict[str, Any]:
        """The JSON object of the response body, or of the last event of a stream."""
        kind = "invalid_request_error" if self.status < _SERVER_ERROR else "server_error"
        return {"error": {"message": self.message, "type": kind, "code": self.code, "param": self.param}}

    def response(self) -> Response:
        """The whole HTTP response."""
        return JSONResponse(self.envelope(), status_code=self.status, headers=self.headers)


def from_lattice(error: LatticeError) -> ApiError:
    """The HTTP form of an error of the core; logs what the client does not get to see and the engine has not logged."""
    status = error.http_status
    param = _WIRE_NAMES.get(error.param, error.param) if error.param else None
    if status < _SERVER_ERROR:
        return ApiError(status, _code(error, param), error.message, param=param)
    headers = {}
    if isinstance(error, ServerBusyError):
        headers["retry-after"] = str(error.retry_after)
    elif not isinstance(error, StepError | EngineDiedError):
        _LOG.error("%s: %s%s", error.code, error.message, f" ({error.detail})" if error.detail else "")
    return ApiError(status, error.code, _PUBLIC.get(error.code, _GENERIC), param=param, headers=headers)


def _code(error: LatticeError, param: str | None) -> str:
    # Its subclasses say more than which field is at fault.
    if type(error) is not RequestError or param is None:
        return error.code
    field = _INDEX.sub("", param)
    return _FIELD_CODES.get(field) or _FIELD_CODES.get(field.partition(".")[0], error.code)


def internal_error() -> ApiError:
    """The 500 of a fault that nobody foresaw; whoever caught it logs the cause."""
    return ApiError(_SERVER_ERROR, "internal_error", _GENERIC)
