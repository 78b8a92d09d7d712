"""Typed access to the keys of a request line. Null is the same as absent, and a boolean is no number."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from lattice_core.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Mapping

_SHOWN = 60


def wrong(name: str, value: Any, wanted: str) -> RequestError:
    """The error for a key of the wrong type or value."""
    text = json.dumps(value)
    text = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
    return RequestError(f'"{name}" must be {wanted}, not {text}', param=name)


def get_text(body: Mapping[str, Any], name: str) -> str | None:
    """A string, or None."""
    value = body.get(name)
    if value is not None and not isinstance(value, str):
        raise wrong(name, value, "a string")
    return value


def get_object(body: Mapping[str, Any], name: str) -> dict[str, Any]:
    """An object; empty when absent."""
    value = body.get(name)
    if value is not None and not isinstance(value, dict):
        raise wrong(name, value, "an object")
    return value or {}


def get_int(body: Mapping[str, Any], name: str, *, low: int, high: int | None = None) -> int | None:
    """A whole number from ``low`` to ``high``, or None."""
    value = body.get(name)
    if value is None:
        return None
    limits = f"a whole number of at least {low}" if high is None else f"a whole number from {low} to {high}"
    if isinstance(value, bool) or not isinstance(value, int) or value < low or (high is not None and value > high):
        raise wrong(name, value, limits)
    return value


def get_number(body: Mapping[str, Any], name: str, *, low: float, high: float, above: bool = False) -> float | None:
    """A number from ``low`` to ``high`` (not ``low`` itself where ``above``), or None."""
    value = body.get(name)
    if value is None:
        return None
    limits = f"a number above {low:g} and at most {high:g}" if above else f"a number from {low:g} to {high:g}"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong(name, value, limits)
    if not low <= value <= high or (above and value == low):
        raise wrong(name, value, limits)
    return float(value)
