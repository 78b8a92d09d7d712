"""What the user sees: answers on stdout, everything else on stderr, and nothing that could drive the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import TextIO

# The control characters C0, DEL and C1: escape sequences begin with them.
_DRIVES_TERMINALS = {code: None for code in [*range(0x20), *range(0x7F, 0xA0)] if chr(code) not in "\t\n"}


def harmless(text: str) -> str:
    """``text`` without control characters, but for tabs and line breaks."""
    return text.translate(_DRIVES_TERMINALS)


class Screen:
    """Writes to the two streams; what their encoding lacks is replaced."""

    def __init__(self, out: TextIO, err: TextIO) -> None:
        self._out = out
        self._err = err

    def show(self, text: str) -> None:
        """Part of an answer, at once. Raises ``BrokenPipeError`` when nobody reads stdout."""
        _write(self._out, harmless(text))

    def note(self, text: str) -> None:
        """A line about the conversation."""
        _write(self._err, harmless(text) + "\n")


def _write(stream: TextIO, text: str) -> None:
    encoding = stream.encoding or "utf-8"
    stream.write(text.encode(encoding, "replace").decode(encoding))
    stream.flush()
