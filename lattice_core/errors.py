"""One tree of errors. Each class carries its stable code, its HTTP status and the exit status of the process.

A message names the value, the limit and the way out. It is shown to users and to HTTP clients of status below 500, so it
holds no traceback; what only an operator may see goes into ``detail``.
"""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar


class ExitCode(IntEnum):
    """Exit statuses of ``lattice``."""

    OK = 0
    FAILURE = 1
    USAGE = 2
    MODEL = 3
    PLUGIN = 4
    ENGINE_DIED = 5


class LatticeError(Exception):
    """Base of all errors that Lattice raises on purpose.

    ``param`` names the request field or option at fault, ``detail`` is for the operator's log only.
    """

    code: ClassVar[str] = "internal_error"
    http_status: ClassVar[int] = 500
    exit_code: ClassVar[ExitCode] = ExitCode.FAILURE

    def __init__(self, message: str, *, param: str | None = None, detail: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.detail = detail


class UsageError(LatticeError):
    """A command line, environment variable or configuration file that says something impossible."""

    code = "usage"
    http_status = 400
    exit_code = ExitCode.USAGE


class RequestError(LatticeError):
    """A request that is refused before any work begins."""

    code = "invalid_request"
    http_status = 400
    exit_code = ExitCode.USAGE


class ContextLengthExceededError(RequestError):
    """The prompt fills or exceeds the model's context."""

    code = "context_length_exceeded"


class UnsupportedFeatureError(RequestError):
    """Something that this model, backend or build cannot honour."""

    code = "unsupported_feature"


class UnknownModelError(RequestError):
    """A request names a model that is not served."""

    code = "model_not_found"
    http_status = 404


class UnknownAdapterError(RequestError):
    """A request names an adapter that is not loaded."""

    code = "lora_adapter_not_found"
    http_status = 404


class InsufficientMemoryError(RequestError):
    """A request that could never fit into the memory budget."""

    code = "insufficient_memory"


class ServerBusyError(LatticeError):
    """The queue is full; the client may try again after ``retry_after`` seconds."""

    code = "server_busy"
    http_status = 503

    def __init__(self, message: str, *, retry_after: int = 1) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class ShuttingDownError(LatticeError):
    """The engine is draining and takes no new requests."""

    code = "shutting_down"
    http_status = 503


class EngineDiedError(LatticeError):
    """The engine cannot continue: too many failed steps in a row, or its thread died."""

    code = "engine_died"
    http_status = 503
    exit_code = ExitCode.ENGINE_DIED


class ModelError(LatticeError):
    """A model that cannot be found or loaded."""

    code = "model_load_failed"
    http_status = 503
    exit_code = ExitCode.MODEL


class AdapterError(ModelError):
    """An adapter that cannot be found, read or made to fit the model; nothing was loaded."""

    code = "lora_load_failed"
    http_status = 400


class AdapterLimitError(AdapterError):
    """An adapter beyond what may be resident at the same time."""

    code = "lora_residency_limit_exceeded"


class UnsupportedAdapterError(AdapterError):
    """The model of this backend cannot hold adapters."""

    code = "lora_unsupported_backend"


class PluginError(LatticeError):
    """A plugin that is missing, broken or ambiguous."""

    code = "plugin_error"
    exit_code = ExitCode.PLUGIN


class GenerationError(LatticeError):
    """A generation that failed after it had been accepted."""

    code = "generation_failed"


class BlockedConstraintError(GenerationError):
    """A grammar allows no token: the row fails, it never samples unconstrained."""

    code = "blocked_constraint"


class SamplerError(GenerationError):
    """A sampler raised, or chose a token that is masked or outside the vocabulary."""

    code = "sampler_failed"


class StepError(GenerationError):
    """A forward pass failed; the active requests fail with it."""

    code = "step_failed"
