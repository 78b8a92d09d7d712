"""Stop strings over streamed text: the earliest match ends the text, and nothing of it is ever emitted."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class StopStrings:
    """Holds back as much text as could be the beginning of a stop string. One instance for each row.

    Work is linear: each push looks only at the held text and the new text.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        """``stops`` are not empty strings; without any, text passes through."""
        self._stops = tuple(stops)
        self._held = ""
        self.matched: str | None = None

    def push(self, text: str) -> str:
        """The text that may be shown now. After a match (``matched`` is set) everything further is dropped."""
        if self.matched is not None:
            return ""
        if not self._stops:
            return text
        self._held += text
        found = [(at, stop) for stop in self._stops if (at := self._held.find(stop)) >= 0]
        if found:
            at, self.matched = min(found, key=lambda item: (item[0], -len(item[1])))
            shown, self._held = self._held[:at], ""
            return shown
        cut = len(self._held) - self._overlap()
        shown, self._held = self._held[:cut], self._held[cut:]
        return shown

    def finish(self) -> str:
        """The held text, at the end of a generation that no stop string ended."""
        held, self._held = self._held, ""
        return held

    def _overlap(self) -> int:
        """Length of the longest end of the held text that is the beginning of a stop string."""
        longest = min(len(self._held), max(map(len, self._stops)) - 1)
        for length in range(longest, 0, -1):
            tail = self._held[-length:]
            if any(stop.startswith(tail) for stop in self._stops):
                return length
        return 0
