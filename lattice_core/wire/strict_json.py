"""JSON as the standard has it: UTF-8, finite numbers, no key twice. Knows nothing of requests."""

from __future__ import annotations

import json
import math
import re
from typing import Any

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_SHOWN = 60


class JSONSyntaxError(ValueError):
    """A text that is not JSON; the message says where, without what a parser says."""


def load_json(data: bytes) -> Any:
    """The value that ``data`` holds; raises ``JSONSyntaxError``."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise JSONSyntaxError(f"it is not UTF-8 at byte {error.start}") from None
    try:
        value = json.loads(text, parse_constant=_no_constant, parse_float=_finite, object_pairs_hook=_unique)
        # Half of a surrogate pair is no character: no tokenizer and no UTF-8 response can hold it.
        if _SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except JSONSyntaxError:
        raise
    except json.JSONDecodeError as error:
        raise JSONSyntaxError(f"syntax error at line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise JSONSyntaxError("it is nested too deeply") from None
    except UnicodeEncodeError:
        raise JSONSyntaxError("a string holds half of a surrogate pair") from None
    except ValueError:
        raise JSONSyntaxError("a number has too many digits") from None
    return value


def _no_constant(name: str) -> Any:
    raise JSONSyntaxError(f"{name} is no JSON number")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise JSONSyntaxError(f"the number {digits[:_SHOWN]} is out of range")
    return number


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]  # add() returns None, which is false
        raise JSONSyntaxError(f"the key {json.dumps(twice[:_SHOWN])} stands twice in one object")
    return found
