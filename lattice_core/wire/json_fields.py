"""Typed access to the members of a request's JSON object. Null is the same as absent; a boolean is no number.

Every error is a ``RequestError`` whose ``param`` is the member's name in the notation of the request's JSON.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from lattice_core.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Mapping

_SHOWN = 60
_KINDS = {bool: "a boolean", int: "an integer", float: "a number", str: "a string", list: "an array", dict: "an object"}


class ConflictingFieldsError(RequestError):
    """Two fields of a request contradict each other; each of them alone would be right."""


def shown(value: Any) -> str:
    """``value`` as it may stand in a message: one short line of printable ASCII."""
    if isinstance(value, (list, dict)):
        return f"{_KINDS[type(value)]} of {len(value)}"
    text = json.dumps(value[:_SHOWN] if isinstance(value, str) else value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def wrong_type(name: str, value: Any, wanted: str) -> RequestError:
    """The error for a member of the wrong type; ``wanted`` says which types are right."""
    # A container's words and null name their type themselves.
    found = shown(value) if value is None or isinstance(value, (list, dict)) else f"{_KINDS[type(value)]}: {shown(value)}"
    return RequestError(f"`{name}` must be {wanted}, not {found}", param=name)


def get_bool(body: Mapping[str, Any], name: str, *, default: bool, shown_as: str | None = None) -> bool:
    """``true`` or ``false``; a string is neither."""
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise wrong_type(shown_as or name, value, "true or false")
    return value


def get_int(body: Mapping[str, Any], name: str, *, low: int, high: int | None = None) -> int | None:
    """An integer of at least ``low`` and at most ``high``, or None."""
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise wrong_type(name, value, "an integer")
    if value < low or (high is not None and value > high):
        limits = f"at least {low}" if high is None else f"from {low} to {high}"
        raise RequestError(f"`{name}` is {shown(value)}; it must be {limits}", param=name)
    return value


def get_number(body: Mapping[str, Any], name: str, *, low: float, high: float, above: bool = False) -> float | None:
    """A finite number from ``low`` (not ``low`` itself where ``above``) to ``high``, or None."""
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise wrong_type(name, value, "a number")
    # Written so that NaN fails it too.
    if not low <= value <= high or (above and value == low):
        limits = f"above {low:g} and at most {high:g}" if above else f"from {low:g} to {high:g}"
        raise RequestError(f"`{name}` is {shown(value)}; it must be {limits}", param=name)
    return float(value)


def get_text(body: Mapping[str, Any], name: str) -> str | None:
    """A string, or None."""
    value = body.get(name)
    if value is not None and not isinstance(value, str):
        raise wrong_type(name, value, "a string")
    return value


def get_object(body: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    """An object, or None."""
    value = body.get(name)
    if value is not None and not isinstance(value, dict):
        raise wrong_type(name, value, "an object")
    return value
