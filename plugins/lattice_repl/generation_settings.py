"""The settings of generation that ``/set`` changes: their names, their limits, how they are written. Knows no engine."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from attrs import frozen

from lattice_core.errors import RequestError
from lattice_core.nearest import did_you_mean
from lattice_core.types import SamplingParams

if TYPE_CHECKING:
    from collections.abc import Mapping


@frozen
class Setting:
    """One number. ``above``: the minimum itself is not allowed; ``none`` is a word for having no value."""

    whole: bool
    minimum: float
    maximum: float
    above: bool = False
    none: str | None = None

    def limits(self) -> str:
        """The limits in words."""
        kind = "a whole number" if self.whole else "a number"
        low = f"above {self.minimum} and" if self.above else f"from {self.minimum}"
        words = f"{kind} {low} {'at most' if self.above else 'to'} {self.maximum}"
        return words if self.none is None else f"{words}, or {self.none}"

    def parse(self, text: str) -> float | int | None:
        """The value that ``text`` writes. Raises ``ValueError``."""
        if text.lower() == self.none:
            return None
        value = int(text) if self.whole else float(text)
        if not math.isfinite(value) or not self.minimum <= value <= self.maximum or (self.above and value == self.minimum):
            raise ValueError(text)
        return value


SETTINGS: Mapping[str, Setting] = {
    "temperature": Setting(whole=False, minimum=0, maximum=100),
    "top-k": Setting(whole=True, minimum=0, maximum=2**31 - 1),
    "top-p": Setting(whole=False, minimum=0, maximum=1, above=True),
    "repetition-penalty": Setting(whole=False, minimum=0, maximum=100, above=True),
    "max-tokens": Setting(whole=True, minimum=1, maximum=2**31 - 1),
    "seed": Setting(whole=True, minimum=0, maximum=2**64 - 1, none="none"),
}


class GenerationSettings:
    """The values in force."""

    def __init__(self, core: Mapping[str, Any]) -> None:
        """Begin with the command line's."""
        self._values = {name: core[name] for name in SETTINGS}

    def change(self, name: str, text: str) -> None:
        """Set ``name`` (with hyphens or underscores) to what ``text`` says. Raises ``RequestError`` that names the limits."""
        known = self._known(name)
        try:
            self._values[known] = SETTINGS[known].parse(text)
        except ValueError:
            raise RequestError(f"{known} must be {SETTINGS[known].limits()}, not {text!r:.60}", param=known) from None

    def line(self, name: str) -> str:
        """One setting as a line: its name and value. Raises ``RequestError`` for an unknown name."""
        known = self._known(name)
        value = self._values[known]
        return f"{known} {'none' if value is None else value}"

    @property
    def max_tokens(self) -> int:
        """Tokens of an answer at most."""
        return int(self._values["max-tokens"])

    @property
    def sampling(self) -> SamplingParams:
        """The sampling parameters of a request."""
        values = self._values
        return SamplingParams(
            temperature=values["temperature"],
            top_k=values["top-k"],
            top_p=values["top-p"],
            repetition_penalty=values["repetition-penalty"],
            seed=values["seed"],
        )

    def _known(self, name: str) -> str:
        known = name.replace("_", "-").lower()
        if known not in SETTINGS:
            msg = f"there is no setting {name!r:.60}{did_you_mean(known, SETTINGS)}; settings: {', '.join(SETTINGS)}"
            raise RequestError(msg, param=name)
        return known
