"""A request line as a ``GenerationRequest``: the keys of this protocol beside those of every frontend.

An absent key or null takes the default of the command line. A wrong type or value is an error that names the key, never a
silent default. Knows nothing of files and events.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lattice_core.errors import RequestError
from lattice_core.wire import (
    ConflictingFieldsError,
    get_object,
    get_text,
    read_generation,
    read_messages,
    refuse_unsupported,
    wrong_type,
)

if TYPE_CHECKING:
    from lattice_core.types import GenerationRequest
    from lattice_core.wire import RequestDefaults

_HONOURED = frozenset({"prompt"})


def echo_of(body: Any) -> dict[str, Any]:
    """The request's ``id``, to be repeated in all its events; empty when it has none that could be."""
    found = body.get("id") if isinstance(body, dict) else None
    return {"id": found} if isinstance(found, str | int | float) else {}


def parse_request(body: Any, defaults: RequestDefaults) -> GenerationRequest:
    """The request that ``body`` (parsed JSON) asks for. Raises ``RequestError`` that names the key."""
    if not isinstance(body, dict):
        raise RequestError('missing "prompt" field', param="prompt")
    found_id = body.get("id")
    if found_id is not None and not echo_of(body):
        raise wrong_type("id", found_id, "a string or a number")
    refuse_unsupported(body, _HONOURED)
    prompt = _prompt(body)
    if body.get("messages") is None:
        if prompt is None:
            raise RequestError('missing "prompt" field', param="prompt")
        if get_object(body, "chat_template_kwargs"):
            raise ConflictingFieldsError(
                "`chat_template_kwargs` goes with `messages`: a `prompt` is taken as it is", param="chat_template_kwargs"
            )
        return read_generation(body, defaults, prompt=prompt, model=get_text(body, "model"))
    if prompt is not None:
        raise ConflictingFieldsError("`prompt` and `messages` exclude each other: send one of them", param="messages")
    messages, _ = read_messages(body)
    return read_generation(body, defaults, messages=messages, model=get_text(body, "model"))


def _prompt(body: dict[str, Any]) -> str | None:
    try:
        return get_text(body, "prompt")
    except RequestError as error:
        raise RequestError(f'missing "prompt" field: {error.message}', param="prompt") from None
