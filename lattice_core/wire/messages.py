"""The conversation of a request: roles and contents. Knows no template and no tokenizer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lattice_core.errors import RequestError, UnsupportedFeatureError
from lattice_core.types import Message
from lattice_core.wire.json_fields import shown, wrong_type

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_MESSAGES = 4096

_ROLES = ("system", "developer", "user", "assistant")
_TOOL_ROLES = ("tool", "function")
_INERT = frozenset(
    {"role", "content", "name", "annotations", "refusal", "reasoning", "reasoning_content", "cache_control", "id"}
)
"""Members that stand in an answer which a client sends back, and that no prompt needs."""

_NEEDS_SUPPORT = ("tool_calls", "function_call", "tool_call_id", "audio", "prefix", "partial", "images")


def read_messages(body: Mapping[str, Any]) -> tuple[tuple[Message, ...], tuple[str, ...]]:
    """The messages, and the names of members that are not known here.

    Text parts are joined as they are. Raises ``RequestError`` or ``UnsupportedFeatureError`` that name the message.
    """
    given = body.get("messages")
    if given is None:
        raise RequestError("`messages` is missing; send an array of messages", param="messages")
    if not isinstance(given, list):
        raise wrong_type("messages", given, "an array")
    if not given:
        raise RequestError("`messages` must not be empty", param="messages")
    if len(given) > MAX_MESSAGES:
        raise RequestError(f"`messages` holds {len(given)} messages; at most {MAX_MESSAGES} are allowed", param="messages")
    unknown: dict[str, None] = {}
    messages = tuple(_message(item, f"messages[{index}]", unknown) for index, item in enumerate(given))
    return messages, tuple(unknown)


def _message(item: Any, where: str, unknown: dict[str, None]) -> Message:
    if not isinstance(item, dict):
        raise wrong_type(where, item, "an object")
    for name, value in item.items():
        if name in _NEEDS_SUPPORT:
            if value not in (None, False) and value != []:
                raise UnsupportedFeatureError(f"`{where}.{name}` is not supported here; leave it out", param=f"{where}.{name}")
        elif name not in _INERT:
            unknown[f"messages[].{name}"] = None
    role = item.get("role")
    if not isinstance(role, str):
        raise wrong_type(f"{where}.role", role, "a string")
    if role in _TOOL_ROLES:
        raise UnsupportedFeatureError(f"`{where}.role` {role} is not supported here; tools are not", param=f"{where}.role")
    if role not in _ROLES:
        raise RequestError(
            f"`{where}.role` {shown(role)} is not a role; use system, developer, user or assistant", param=f"{where}.role"
        )
    return Message(role, _content(item.get("content"), f"{where}.content"))


def _content(value: Any, where: str) -> str:
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise wrong_type(where, value, "a string or an array of text parts")
    if not value:
        raise RequestError(f"`{where}` must not be an empty array", param=where)
    return "".join(_part(part, f"{where}[{index}]") for index, part in enumerate(value))


def _part(part: Any, where: str) -> str:
    if not isinstance(part, dict):
        raise wrong_type(where, part, "an object")
    kind = part.get("type")
    if not isinstance(kind, str):
        raise wrong_type(f"{where}.type", kind, "a string")
    if kind != "text":
        raise UnsupportedFeatureError(
            f"`{where}.type` {shown(kind)} is not supported here; only text is", param=f"{where}.type"
        )
    text = part.get("text")
    if not isinstance(text, str):
        raise wrong_type(f"{where}.text", text, "a string")
    return text
