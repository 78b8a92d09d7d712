"""One line of JSON as the standard has it: an object in UTF-8, finite numbers, no key twice. Knows nothing of requests."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn


def load_line(line: bytes) -> Any:
    """The value in ``line``. Raises ``ValueError`` with one line that says what is wrong."""
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"the line is not UTF-8 at byte {error.start}") from None
    try:
        return json.loads(text, parse_constant=_no_constant, parse_float=_finite, object_pairs_hook=_unique)
    except RecursionError:
        raise ValueError("the line is nested too deeply") from None


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"the number {digits[:40]} is too large")
    return number


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key[:40]!r} stands twice in one object")
        found[key] = value
    return found
