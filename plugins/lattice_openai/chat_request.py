"""From the JSON object of a chat request to a ``GenerationRequest``. Pure: knows no HTTP, no engine, no tokenizer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import frozen

from lattice_core.errors import UnsupportedFeatureError
from lattice_core.types import MODEL_ALIAS
from lattice_core.wire import (
    GENERATION_FIELDS,
    get_bool,
    get_object,
    get_text,
    read_generation,
    read_messages,
    refuse_unsupported,
    unknown_fields,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lattice_core.types import GenerationRequest
    from lattice_core.wire import RequestDefaults

_OWN = GENERATION_FIELDS | {"model", "messages", "stream", "stream_options"}


@frozen
class ChatRequest:
    """A valid chat request. ``unknown`` names fields that no part of the server knows; they are ignored."""

    generation: GenerationRequest
    stream: bool = False
    include_usage: bool = False
    unknown: tuple[str, ...] = ()

    def answering(self, served: str) -> str:
        """The id of what answers: the adapter that the request names, else ``served``."""
        asked = self.generation
        return asked.adapter or (served if asked.model in (None, MODEL_ALIAS) else asked.model)


def parse_chat_request(body: Mapping[str, Any], *, defaults: RequestDefaults) -> ChatRequest:
    """Check every field and fill in the server's defaults; whether the model is served is the engine's to say.

    Raises ``RequestError`` that names the field in ``param``.
    """
    refuse_unsupported(body)
    model = get_text(body, "model")
    messages, unknown = read_messages(body)
    stream = get_bool(body, "stream", default=False)
    include_usage, unknown_options = _stream_options(body)
    return ChatRequest(
        generation=read_generation(body, defaults, messages=messages, model=model),
        stream=stream,
        include_usage=include_usage,
        unknown=unknown_fields(body, _OWN) + unknown_options + unknown,
    )


def _stream_options(body: Mapping[str, Any]) -> tuple[bool, tuple[str, ...]]:
    options = get_object(body, "stream_options")
    if options is None:
        return False, ()
    if get_bool(options, "continuous_usage_stats", default=False, shown_as="stream_options.continuous_usage_stats"):
        name = "stream_options.continuous_usage_stats"
        raise UnsupportedFeatureError(f"`{name}` is not supported here; use stream_options.include_usage", param=name)
    known = ("include_usage", "include_obfuscation", "continuous_usage_stats")
    unknown = tuple(f"stream_options.{name}" for name in options if name not in known)
    return get_bool(options, "include_usage", default=False, shown_as="stream_options.include_usage"), unknown
