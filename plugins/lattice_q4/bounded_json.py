"""JSON files that nobody vouches for: as the standard has it, no key twice, and bounded before anything is built of them.

Owns the bounds on nesting and on the number of values, which bound the memory that parsing takes. Knows no format.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from lattice_core.errors import ModelError
from lattice_core.wire import JSONSyntaxError, load_json
from lattice_q4.regular_file import read_regular

if TYPE_CHECKING:
    from pathlib import Path

_MAX_DEPTH = 32
_MAX_VALUES = 1_000_000
_SHOWN = 120
# Strings are skipped as wholes, an unfinished one to the end of the text, so that one pass is all it ever takes.
_TOKENS = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[\]{},]', re.DOTALL)


def read_json(path: Path, limit: int) -> Any:
    """The value in a file of at most ``limit`` bytes, nested at most 32 deep, of at most a million values.

    Raises ``ModelError``.
    """
    data = read_regular(path, limit)
    cause = _beyond_bounds(data)
    if cause is None:
        try:
            return load_json(data)
        except JSONSyntaxError as error:
            cause = str(error)
    raise ModelError(f"{path}: is no valid JSON: {cause}")


def read_object(path: Path, limit: int) -> dict[str, Any]:
    """The object in a file, as ``read_json`` reads it. Raises ``ModelError``."""
    found = read_json(path, limit)
    if not isinstance(found, dict):
        raise ModelError(f"{path}: holds the JSON {shown(found)}, an object is expected")
    return found


def is_there(path: Path) -> bool:
    """Whether there is anything by this name: a link to nowhere counts, so that it is an error and not overlooked."""
    return os.path.lexists(path)


def shown(value: Any) -> str:
    """A value from a file for a message: in quotes if it is a text, on one line, never long."""
    text = repr(value[: _SHOWN + 1] if isinstance(value, (str, list)) else value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


def _beyond_bounds(text: bytes) -> str | None:
    depth, found = 0, 1
    for match in _TOKENS.finditer(text):
        first = text[match.start() : match.start() + 1]
        if first in b"]}":
            depth -= 1
        elif first != b'"':
            found += 1
            depth += first in b"[{"
        if found > _MAX_VALUES:
            return f"it holds more than {_MAX_VALUES} values"
        if depth > _MAX_DEPTH:
            return f"it is nested more than {_MAX_DEPTH} deep"
    return None
