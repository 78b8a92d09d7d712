"""JSON that nobody vouches for: as the standard has it, no key twice, and bounded before anything is built of it.

Owns the bounds on nesting and on the number of values, which bound the memory that parsing takes. Knows no format.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from lattice_core.errors import ModelError
from lattice_core.untrusted_files.regular_file import read_regular
from lattice_core.wire import JSONSyntaxError, load_json

if TYPE_CHECKING:
    from pathlib import Path

MAX_DEPTH = 32
MAX_VALUES = 1_000_000
_SHOWN = 120
# Strings are skipped as wholes, an unfinished one to the end of the text, so that one pass is all it ever takes.
_TOKENS = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[\]{},]', re.DOTALL)
_OPENING, _CLOSING = frozenset(b"[{"), frozenset(b"]}")
_QUOTE = ord('"')


def load_bounded(data: bytes | memoryview, *, values: int = MAX_VALUES) -> Any:
    """The JSON value in ``data``, nested at most ``MAX_DEPTH`` deep and of at most ``values`` values.

    Raises ``JSONSyntaxError`` for everything else.
    """
    text = bytes(data)
    depth, found = 0, 1
    for match in _TOKENS.finditer(text):
        first = text[match.start()]
        if first == _QUOTE:
            continue
        if first in _CLOSING:
            depth -= 1
            continue
        found += 1
        if found > values:
            raise JSONSyntaxError(f"it holds more than {values} values")
        if first in _OPENING:
            depth += 1
            if depth > MAX_DEPTH:
                raise JSONSyntaxError(f"it is nested more than {MAX_DEPTH} deep")
    return load_json(text)


def read_json(path: Path, *, limit: int, values: int = MAX_VALUES) -> Any:
    """The JSON value in a file of at most ``limit`` bytes and ``values`` values. Raises ``ModelError``."""
    data = read_regular(path, limit)
    try:
        return load_bounded(data, values=values)
    except JSONSyntaxError as error:
        raise ModelError(f"{path}: is no valid JSON: {error}") from error


def read_object(path: Path, *, limit: int, values: int = MAX_VALUES) -> dict[str, Any]:
    """The JSON object in a file, as ``read_json`` reads it. Raises ``ModelError``."""
    found = read_json(path, limit=limit, values=values)
    if not isinstance(found, dict):
        raise ModelError(f"{path}: holds a JSON {_kind(found)}, an object is expected")
    return found


def shown_value(value: Any) -> str:
    """A value from a file for a message: in quotes if it is a text, on one line, never long."""
    text = repr(value[: _SHOWN + 1] if isinstance(value, (str, list)) else value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


def _kind(value: Any) -> str:
    if isinstance(value, list):
        return "array"
    if isinstance(value, str):
        return "string"
    return "null" if value is None else "boolean" if isinstance(value, bool) else "number"
