"""Where the windows of a long text lie and which of its tokens each one scores. Knows numbers only.

The scheme is that of Hugging Face's page "Perplexity of fixed-length models": windows of ``window`` tokens begin every
``stride`` tokens, and each scores the tokens that no earlier one has reached.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

if TYPE_CHECKING:
    from collections.abc import Iterator


@frozen
class Window:
    """Tokens ``start`` to ``stop`` are what the model sees; those from ``first_scored`` on are scored."""

    start: int
    first_scored: int
    stop: int

    @property
    def scored(self) -> int:
        """How many tokens the window scores."""
        return self.stop - self.first_scored


def windows_of(count: int, window: int, stride: int) -> Iterator[Window]:
    """The windows over ``count`` tokens; ``1 <= stride <= window``.

    Every token but the first is scored once, after the first window with at least ``window - stride`` tokens before it. With
    ``stride == window`` the first token of each window has none and is left out.
    """
    reached = 0
    for start in range(0, count, stride):
        stop = min(start + window, count)
        first = max(reached, start + 1)
        if first < stop:
            yield Window(start, first, stop)
        reached = stop
