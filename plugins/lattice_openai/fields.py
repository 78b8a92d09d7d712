"""Typed access to the members of a request's JSON object. Null is the same as absent; a boolean is no number."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from lattice_openai.errors import invalid

if TYPE_CHECKING:
    from collections.abc import Mapping

_SHOWN = 60
_KINDS = {bool: "a boolean", int: "an integer", float: "a number", str: "a string", list: "an array", dict: "an object"}


def shown(value: Any) -> str:
    """``value`` as it may stand in a message: one short line of printable ASCII."""
    if isinstance(value, (list, dict)):
        return f"{_KINDS[type(value)]} of {len(value)}"
    text = json.dumps(value[:_SHOWN] if isinstance(value, str) else value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def wrong_type(name: str, value: Any, wanted: str, code: str = "invalid_request") -> Exception:
    """The error for a member of the wrong type."""
    kind = _KINDS.get(type(value), "null")
    return invalid(f"`{name}` must be {wanted}, not {kind}: {shown(value)}", param=name, code=code)


def get_bool(body: Mapping[str, Any], name: str, *, default: bool, shown_as: str | None = None) -> bool:
    """``true`` or ``false``; a string is neither."""
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise wrong_type(shown_as or name, value, "true or false")
    return value


def get_int(
    body: Mapping[str, Any], name: str, *, low: int, high: int | None = None, code: str = "invalid_request"
) -> int | None:
    """An integer of at least ``low`` and at most ``high``, or None."""
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise wrong_type(name, value, "an integer", code)
    if value < low or (high is not None and value > high):
        limits = f"at least {low}" if high is None else f"from {low} to {high}"
        raise invalid(f"`{name}` is {shown(value)}; it must be {limits}", param=name, code=code)
    return value


def get_number(body: Mapping[str, Any], name: str, *, low: float, high: float, code: str, above: bool = False) -> float | None:
    """A finite number from ``low`` (not ``low`` itself where ``above``) to ``high``, or None."""
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise wrong_type(name, value, "a number", code)
    # Written so that NaN fails it too.
    if not low <= value <= high or (above and value == low):
        limits = f"above {low:g} and at most {high:g}" if above else f"from {low:g} to {high:g}"
        raise invalid(f"`{name}` is {shown(value)}; it must be {limits}", param=name, code=code)
    return float(value)
