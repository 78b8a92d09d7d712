"""From the JSON object of a chat request to a ``GenerationRequest``. Pure: knows no HTTP, no engine, no tokenizer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import frozen

from lattice_core.types import GenerationRequest, GrammarRequest, SamplingParams
from lattice_openai.errors import ApiError, invalid, unsupported
from lattice_openai.fields import get_bool, get_int, get_number, shown, wrong_type
from lattice_openai.messages import read_messages
from lattice_openai.unsupported import is_known, refuse_unsupported

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lattice_openai.config import RequestDefaults

MODEL_ALIAS = "lattice"
"""A name under which every served model answers."""

MAX_STOPS = 4
MAX_STOP_BYTES = 4096
MAX_STOP_BYTES_TOGETHER = 8192

_U64 = 2**64
_TOP_K_HIGHEST = 2**31 - 1
_OWN = frozenset(
    {
        "model",
        "messages",
        "stream",
        "stream_options",
        "max_tokens",
        "max_completion_tokens",
        "temperature",
        "top_p",
        "top_k",
        "repetition_penalty",
        "seed",
        "stop",
        "n",
        "response_format",
    }
)


@frozen
class ChatRequest:
    """A valid chat request. ``unknown`` names fields that no part of the server knows; they are ignored."""

    generation: GenerationRequest
    stream: bool = False
    include_usage: bool = False
    unknown: tuple[str, ...] = ()


def parse_chat_request(body: Mapping[str, Any], *, served: str, defaults: RequestDefaults) -> ChatRequest:
    """Check every field and fill in the server's defaults; ``served`` is the id of the model.

    Raises ``ApiError``: 400 that names the field in ``param``, 404 for another model.
    """
    refuse_unsupported(body)
    _check_n(body)
    limit = _max_tokens(body)
    check_model(body.get("model"), served)
    messages, unknown = read_messages(body)
    stream = get_bool(body, "stream", default=False)
    include_usage, unknown_options = _stream_options(body)
    grammar = _grammar(body)
    return ChatRequest(
        generation=GenerationRequest(
            messages=messages,
            max_tokens=limit if limit is not None else _default_max_tokens(grammar, defaults),
            stop=_stop(body),
            sampling=_sampling(body, grammar, defaults),
            grammar=grammar,
        ),
        stream=stream,
        include_usage=include_usage,
        unknown=tuple(name for name in body if name not in _OWN and not is_known(name)) + unknown_options + unknown,
    )


def check_model(name: Any, served: str) -> None:
    """Raise 404 ``model_not_found`` unless ``name`` is absent, the alias or the served id."""
    if name is None:
        return
    if not isinstance(name, str):
        raise wrong_type("model", name, "a string")
    if name not in (MODEL_ALIAS, served):
        raise ApiError(
            404,
            "model_not_found",
            f"the model {shown(name)} is not served here; served: {served} (also as {MODEL_ALIAS})",
            param="model",
        )


def _check_n(body: Mapping[str, Any]) -> None:
    n = get_int(body, "n", low=1)
    if n is not None and n > 1:
        raise unsupported(f"`n` is {shown(n)}; one choice per request is supported here, send several", param="n")


def _max_tokens(body: Mapping[str, Any]) -> int | None:
    old = get_int(body, "max_tokens", low=1, code="invalid_max_tokens")
    new = get_int(body, "max_completion_tokens", low=1, code="invalid_max_tokens")
    if old is not None and new is not None and old != new:
        raise invalid(
            f"`max_tokens` is {shown(old)} and `max_completion_tokens` is {shown(new)}; send one of them",
            param="max_completion_tokens",
        )
    return old if new is None else new


def _default_max_tokens(grammar: GrammarRequest | None, defaults: RequestDefaults) -> int | None:
    # A constrained answer that is cut is broken, so it gets the rest of the context unless the operator set a number.
    if grammar is not None and "max-tokens" not in defaults.explicit:
        return None
    return defaults.max_tokens


def _sampling(body: Mapping[str, Any], grammar: GrammarRequest | None, defaults: RequestDefaults) -> SamplingParams:
    temperature = get_number(body, "temperature", low=0, high=2, code="invalid_temperature")
    top_p = get_number(body, "top_p", low=0, high=1, above=True, code="invalid_top_p")
    top_k = get_int(body, "top_k", low=0, code="invalid_top_k")
    penalty = get_number(body, "repetition_penalty", low=0.01, high=100, code="invalid_repetition_penalty")
    if penalty is None:
        penalty = defaults.repetition_penalty
        # The punctuation of JSON must repeat.
        if grammar is not None and "repetition-penalty" not in defaults.explicit:
            penalty = 1.0
    return SamplingParams(
        temperature=defaults.temperature if temperature is None else temperature,
        top_k=defaults.top_k if top_k is None else min(top_k, _TOP_K_HIGHEST),
        top_p=defaults.top_p if top_p is None else top_p,
        repetition_penalty=penalty,
        seed=_seed(body, defaults),
    )


def _seed(body: Mapping[str, Any], defaults: RequestDefaults) -> int | None:
    if body.get("seed") is None:
        return defaults.seed
    seed = get_int(body, "seed", low=-(2**63), high=_U64 - 1, code="invalid_seed")
    return None if seed is None or seed == -1 else seed % _U64


def _stop(body: Mapping[str, Any]) -> tuple[str, ...]:
    given = body.get("stop")
    if given is None:
        return ()
    stops = [given] if isinstance(given, str) else given
    if not isinstance(stops, list):
        raise wrong_type("stop", given, "a string or an array of strings", "invalid_stop")
    if not 1 <= len(stops) <= MAX_STOPS:
        raise invalid(f"`stop` holds {len(stops)} strings; 1 to {MAX_STOPS} are allowed", param="stop", code="invalid_stop")
    together = 0
    for index, text in enumerate(stops):
        if not isinstance(text, str):
            raise wrong_type(f"stop[{index}]", text, "a string", "invalid_stop")
        size = len(text.encode())
        together += size
        if not 1 <= size <= MAX_STOP_BYTES:
            raise invalid(
                f"`stop[{index}]` has {size} bytes; 1 to {MAX_STOP_BYTES} are allowed", param="stop", code="invalid_stop"
            )
    if together > MAX_STOP_BYTES_TOGETHER:
        raise invalid(
            f"`stop` has {together} bytes together; at most {MAX_STOP_BYTES_TOGETHER} are allowed",
            param="stop",
            code="invalid_stop",
        )
    return tuple(stops)


def _stream_options(body: Mapping[str, Any]) -> tuple[bool, tuple[str, ...]]:
    options = body.get("stream_options")
    if options is None:
        return False, ()
    if not isinstance(options, dict):
        raise wrong_type("stream_options", options, "an object")
    if get_bool(options, "continuous_usage_stats", default=False, shown_as="stream_options.continuous_usage_stats"):
        name = "stream_options.continuous_usage_stats"
        raise unsupported(f"`{name}` is not supported here; use stream_options.include_usage", param=name)
    known = ("include_usage", "include_obfuscation", "continuous_usage_stats")
    unknown = tuple(f"stream_options.{name}" for name in options if name not in known)
    return get_bool(options, "include_usage", default=False, shown_as="stream_options.include_usage"), unknown


def _grammar(body: Mapping[str, Any]) -> GrammarRequest | None:
    """``{"type": X, X: spec}`` asks for the grammar ``X`` with ``spec``; ``text`` asks for none."""
    given = body.get("response_format")
    if given is None:
        return None
    if not isinstance(given, dict):
        raise wrong_type("response_format", given, "an object")
    kind = given.get("type")
    if not isinstance(kind, str):
        raise wrong_type("response_format.type", kind, "a string")
    for name in given:
        if name not in ("type", kind):
            raise unsupported(
                f"`response_format.{name[:60]}` is not supported here with the type {shown(kind)}; leave it out",
                param="response_format",
            )
    spec = given.get(kind) if kind != "type" else None
    if kind == "text":
        return None
    if kind == "json_schema":
        schema = spec.get("schema") if isinstance(spec, dict) else None
        if not isinstance(schema, dict):
            raise invalid(
                "`response_format.json_schema.schema` must be an object that holds a JSON schema",
                param="response_format.json_schema.schema",
            )
    return GrammarRequest(kind, spec)
