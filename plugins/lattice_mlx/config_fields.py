"""Reads a model's configuration field by field and refuses what cannot be meant. Knows no architecture."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NoReturn

from attrs import frozen

from lattice_core.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Mapping


@frozen
class ConfigFields:
    """A mapping in Hugging Face notation. Every reader raises ``ModelError`` naming the field, its value and the limit.

    ``where`` stands before the names in messages.
    """

    values: Mapping[str, Any]
    where: str = "config"

    def has(self, name: str) -> bool:
        """Whether the field is there and not null."""
        return self.values.get(name) is not None

    def integer(self, name: str, maximum: int, default: int | None = None) -> int:
        """A whole number from 1 to ``maximum``."""
        value = self._value(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= maximum:
            self.refuse(name, f"expected a whole number from 1 to {maximum}")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        """A finite number above 0."""
        value = self._value(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
            self.refuse(name, "expected a finite number above 0")
        return float(value)

    def flag(self, name: str, *, default: bool) -> bool:
        """True or false."""
        value = self._value(name, default)
        if not isinstance(value, bool):
            self.refuse(name, "expected true or false")
        return value

    def choice(self, name: str, allowed: tuple[str, ...], default: str) -> str:
        """One of ``allowed``."""
        value = self._value(name, default)
        if value not in allowed:
            self.refuse(name, f"this backend knows {', '.join(allowed)}")
        return str(value)

    def section(self, name: str) -> ConfigFields:
        """A nested mapping; empty where there is none."""
        value = self.values.get(name)
        if value is None:
            return ConfigFields({}, f"{self.where}.{name}")
        if not hasattr(value, "keys"):
            self.refuse(name, "expected a mapping")
        return ConfigFields(value, f"{self.where}.{name}")

    def refuse(self, name: str, expected: str) -> NoReturn:
        """Raise for a field that is there and wrong."""
        raise ModelError(f"{self.where}.{name} is {self.values.get(name)!r}: {expected}")

    def _value(self, name: str, default: Any) -> Any:
        value = self.values.get(name)
        if value is None:
            value = default
        if value is None:
            raise ModelError(f"{self.where}.{name} is missing")
        return value
