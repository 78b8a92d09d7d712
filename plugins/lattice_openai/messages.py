"""The conversation of a chat request: roles and contents. Knows no template and no tokenizer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lattice_core.types import Message
from lattice_openai.errors import invalid, unsupported
from lattice_openai.fields import shown, wrong_type

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_MESSAGES = 4096

_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
_TOOL_ROLES = ("tool", "function")
_INERT = frozenset(
    {"role", "content", "name", "annotations", "refusal", "reasoning", "reasoning_content", "cache_control", "id"}
)
"""Members that stand in an answer which a client sends back, and that no prompt needs."""

_NEEDS_SUPPORT = ("tool_calls", "function_call", "tool_call_id", "audio", "prefix", "partial", "images")


def read_messages(body: Mapping[str, Any]) -> tuple[tuple[Message, ...], tuple[str, ...]]:
    """The messages, and the names of members that are not known here.

    ``developer`` becomes ``system``; text parts are joined as they are. Raises ``ApiError`` that names the message.
    """
    given = body.get("messages")
    if given is None:
        raise invalid("`messages` is missing; send an array of messages", param="messages", code="invalid_messages")
    if not isinstance(given, list):
        raise wrong_type("messages", given, "an array", "invalid_messages")
    if not given:
        raise invalid("`messages` must not be empty", param="messages", code="invalid_messages")
    if len(given) > MAX_MESSAGES:
        raise invalid(
            f"`messages` holds {len(given)} messages; at most {MAX_MESSAGES} are allowed",
            param="messages",
            code="invalid_messages",
        )
    unknown: dict[str, None] = {}
    messages = tuple(_message(item, f"messages[{index}]", unknown) for index, item in enumerate(given))
    return messages, tuple(unknown)


def _message(item: Any, where: str, unknown: dict[str, None]) -> Message:
    if not isinstance(item, dict):
        raise wrong_type(where, item, "an object", "invalid_messages")
    for name, value in item.items():
        if name in _NEEDS_SUPPORT:
            if value not in (None, False) and value != []:
                raise unsupported(f"`{where}.{name}` is not supported here; leave it out", param=f"{where}.{name}")
        elif name not in _INERT:
            unknown[f"messages[].{name}"] = None
    role = item.get("role")
    if not isinstance(role, str):
        raise wrong_type(f"{where}.role", role, "a string", "invalid_role")
    if role in _TOOL_ROLES:
        raise unsupported(f"`{where}.role` {role} is not supported here; tools are not", param=f"{where}.role")
    if role not in _ROLES:
        raise invalid(
            f"`{where}.role` {shown(role)} is not a role; use system, developer, user or assistant",
            param=f"{where}.role",
            code="invalid_role",
        )
    return Message(_ROLES[role], _content(item.get("content"), f"{where}.content"))


def _content(value: Any, where: str) -> str:
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise wrong_type(where, value, "a string or an array of text parts", "invalid_messages")
    if not value:
        raise invalid(f"`{where}` must not be an empty array", param=where, code="invalid_messages")
    return "".join(_part(part, f"{where}[{index}]") for index, part in enumerate(value))


def _part(part: Any, where: str) -> str:
    if not isinstance(part, dict):
        raise wrong_type(where, part, "an object", "invalid_messages")
    kind = part.get("type")
    if not isinstance(kind, str):
        raise wrong_type(f"{where}.type", kind, "a string", "invalid_messages")
    if kind != "text":
        raise unsupported(f"`{where}.type` {shown(kind)} is not supported here; only text is", param=f"{where}.type")
    text = part.get("text")
    if not isinstance(text, str):
        raise wrong_type(f"{where}.text", text, "a string", "invalid_messages")
    return text
