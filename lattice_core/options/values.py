"""Turns what stands on a command line, in the environment or in a configuration file into an option's value.

Every error names where the value stood, the value and the limit. Knows nothing of priorities.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lattice_core.errors import UsageError
from lattice_core.nearest import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable

    from lattice_core.descriptors import Option

_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off"})
_INTEGER = re.compile(r"[+-]?[0-9]+")
_BYTES = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_MOST_DIGITS = 30


def convert(option: Option, raw: Any, where: str) -> Any:
    """The value of ``option`` from text or from a TOML value; raises ``UsageError`` that begins with ``where``.

    A repeatable option takes a list (flags, TOML) or comma-separated text (environment) and gives a tuple.
    """
    if option.repeatable:
        items = raw if isinstance(raw, list) else [item.strip() for item in str(raw).split(",") if item.strip()]
        return tuple(_single(option, item, where) for item in items)
    return _single(option, raw, where)


def _single(option: Option, raw: Any, where: str) -> Any:
    value: Any = _PARSERS[option.type](raw, where)
    if option.choices and value not in option.choices:
        names = ", ".join(option.choices)
        msg = f"{where}: {value!r} is not one of {names}{did_you_mean(str(value), option.choices)}"
        raise UsageError(msg, param=option.name)
    if option.minimum is not None and value < option.minimum:
        msg = f"{where}: {raw} is below the minimum {_plain(option.minimum)}"
        raise UsageError(msg, param=option.name)
    if option.maximum is not None and value > option.maximum:
        msg = f"{where}: {raw} is above the maximum {_plain(option.maximum)}"
        raise UsageError(msg, param=option.name)
    return value


def _plain(number: float) -> str:
    return f"{number:f}".rstrip("0") if isinstance(number, float) and not number.is_integer() else str(int(number))


def _refuse(raw: Any, where: str, wanted: str) -> UsageError:
    shown = repr(raw if not isinstance(raw, str) or len(raw) <= 80 else raw[:77] + "...")  # noqa: PLR2004  # a line's worth
    return UsageError(f"{where}: {shown} is not {wanted}")


def _text(raw: Any, where: str) -> str:
    if not isinstance(raw, str):
        raise _refuse(raw, where, "text")
    return raw


def _integer(raw: Any, where: str) -> int:
    if isinstance(raw, int) and not isinstance(raw, bool):
        return raw
    if isinstance(raw, str) and _INTEGER.fullmatch(raw.strip()) and len(raw.strip()) <= _MOST_DIGITS:
        return int(raw)
    raise _refuse(raw, where, "an integer")


def _number(raw: Any, where: str) -> float:
    if isinstance(raw, bool) or not isinstance(raw, int | float | str):
        raise _refuse(raw, where, "a number")
    try:
        value = float(raw)
    except (ValueError, OverflowError):
        raise _refuse(raw, where, "a number") from None
    if not math.isfinite(value):
        raise _refuse(raw, where, "a finite number")
    return value


def _switch(raw: Any, where: str) -> bool:
    if isinstance(raw, bool):
        return raw
    word = raw.strip().lower() if isinstance(raw, str) else None
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    raise _refuse(raw, where, "true or false (1, yes, on; 0, no, off)")


def _path(raw: Any, where: str) -> Path:
    if not isinstance(raw, str) or not raw or "\0" in raw:
        raise _refuse(raw, where, "a path")
    try:
        return Path(raw).expanduser()
    except RuntimeError:
        raise _refuse(raw, where, "a path: that user has no home directory") from None


def _size(raw: Any, where: str) -> int:
    if isinstance(raw, int) and not isinstance(raw, bool):
        return raw
    found = _BYTES.fullmatch(raw.strip()) if isinstance(raw, str) and len(raw) <= _MOST_DIGITS else None
    if found is None:
        raise _refuse(raw, where, "a size in bytes, such as 512M or 8G")
    return int(float(found[1]) * _UNITS[found[2].lower()])


_PARSERS: dict[str, Callable[[Any, str], Any]] = {
    "str": _text,
    "int": _integer,
    "float": _number,
    "bool": _switch,
    "path": _path,
    "bytes": _size,
}
