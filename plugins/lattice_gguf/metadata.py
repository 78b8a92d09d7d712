"""Typed access to the metadata of a GGUF file; a missing or mistyped key is one clear error.

Owns the rule for defaults. Must not know which keys an architecture or a tokenizer needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, overload

import numpy as np

from lattice_core.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

T = TypeVar("T")
_REQUIRED: Any = object()


class Metadata:
    """The key-value pairs of one model. ``path`` is for messages.

    Each getter raises ``ModelError`` for a value of another type; without ``default`` also for a missing key.
    """

    def __init__(self, values: Mapping[str, Any], path: Path) -> None:
        self._values = values
        self.path = path

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def fail(self, cause: str) -> NoReturn:
        """Raise ``ModelError`` naming the file."""
        raise ModelError(f"{self.path}: {cause}")

    def text(self, key: str, *, default: str = _REQUIRED) -> str:
        """A string."""
        return self._get(key, str, "a string", default)

    def optional_text(self, key: str) -> str | None:
        """A string, or None where the key is missing."""
        return self.text(key) if key in self else None

    def flag(self, key: str, *, default: bool = _REQUIRED) -> bool:
        """A boolean."""
        return self._get(key, bool, "a boolean", default)

    @overload
    def integer(self, key: str) -> int: ...

    @overload
    def integer(self, key: str, *, default: T) -> int | T: ...

    def integer(self, key: str, *, default: Any = _REQUIRED) -> Any:
        """An integer of at least 0; an array of equal integers (one per layer) counts as one."""
        value = self._values.get(key)
        if isinstance(value, np.ndarray) and value.dtype.kind in "iu" and value.size:
            if (value != value[0]).any():
                self.fail(f"metadata key {key!r} differs between layers, which is not supported")
            value = value[0].item()
        if isinstance(value, int) and not isinstance(value, bool):
            if value < 0:
                self.fail(f"metadata key {key!r} is {value}, which is negative")
            return value
        return self._get(key, int, "an integer", default)

    @overload
    def number(self, key: str) -> float: ...

    @overload
    def number(self, key: str, *, default: T) -> float | T: ...

    def number(self, key: str, *, default: Any = _REQUIRED) -> Any:
        """A finite number."""
        value = self._values.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool):
            if not np.isfinite(value):
                self.fail(f"metadata key {key!r} is {value}, which is not a finite number")
            return float(value)
        return self._get(key, float, "a number", default)

    def strings(self, key: str) -> list[str]:
        """An array of strings."""
        value = self._get(key, list, "an array of strings", _REQUIRED)
        if not all(isinstance(item, str) for item in value):
            self._mistyped(key, "an array of strings")
        return value

    def numbers(self, key: str, count: int, what: str) -> list[Any]:
        """An array of ``count`` numbers, one for each of ``what``."""
        value = self._get(key, np.ndarray, "an array of numbers", _REQUIRED)
        if value.size != count:
            self.fail(f"metadata key {key!r} has {value.size} elements for {count} {what}")
        items: list[Any] = value.tolist()
        return items

    def _get(self, key: str, kind: type[T], what: str, default: Any) -> T:
        if key not in self._values:
            if default is _REQUIRED:
                self.fail(f"metadata key {key!r} is missing")
            found: T = default
            return found
        value = self._values[key]
        # A boolean is an int to Python, but no count in a file.
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            self._mistyped(key, what)
        return value

    def _mistyped(self, key: str, what: str) -> NoReturn:
        value = self._values[key]
        name = f"an array of {value.dtype.name}" if isinstance(value, np.ndarray) else f"of type {type(value).__name__}"
        self.fail(f"metadata key {key!r} is {name}, not {what}")
