"""Which adapter the next answers are made with. Knows the engine; shows nothing itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lattice_core.errors import RequestError
from lattice_core.nearest import did_you_mean

if TYPE_CHECKING:
    from lattice_core.protocols import EngineAPI
    from lattice_core.types import AdapterInfo

OFF = "off"
_MEGABYTE = 1024 * 1024


class AdapterChoice:
    """``adapter`` is what a request gets: a name, an empty text for none, or None for the one that serves by default."""

    def __init__(self, engine: EngineAPI) -> None:
        self._engine = engine
        self.adapter: str | None = None

    @property
    def current(self) -> str | None:
        """The name of the adapter in use."""
        if self.adapter is None:
            return next((info.name for info in self._loaded() if info.default), None)
        return self.adapter or None

    def choose(self, name: str) -> None:
        """Answer with the adapter ``name``, or with none for ``off``. Raises ``RequestError`` for an unknown one."""
        known = [info.name for info in self._loaded()]
        if name in known:
            self.adapter = name
        elif name.lower() == OFF:
            self.adapter = ""
        else:
            raise RequestError(f"there is no adapter {name!r:.60}{did_you_mean(name, [*known, OFF])}; {self._way_out(known)}")

    def lines(self) -> list[str]:
        """The adapters, the one in use marked; or what to do where there is none."""
        loaded, current = self._loaded(), self.current
        if not loaded:
            return [f"there is no adapter; {self._way_out([])}"]
        marked = [
            f"{'*' if info.name == current else ' '} {info.name} ({info.format}, {info.nbytes / _MEGABYTE:.1f} MiB)"
            for info in loaded
        ]
        return [*marked, f"{'*' if current is None else ' '} {OFF}"]

    def _loaded(self) -> list[AdapterInfo]:
        return [info for info in self._engine.adapters() if not info.unloading]

    @staticmethod
    def _way_out(known: list[str]) -> str:
        return f"adapters: {', '.join([*known, OFF])}" if known else "start with --lora NAME=PATH"
