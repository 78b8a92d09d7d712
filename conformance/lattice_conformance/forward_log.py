"""Owns what a scripted model remembers of the work it was given, for tests to look at. Knows nothing of arrays."""

from __future__ import annotations

from collections import deque
from threading import Lock
from typing import TYPE_CHECKING

from attrs import frozen

from lattice_conformance.scripted_tokenizer import text_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lattice_core.types import AdapterId, StateId, Want

_KEPT = 10_000


@frozen
class RowRecord:
    """One row of a forward: its state, the tokens it consumed, what it wanted, its adapter.

    ``decode``: whether its prompt was complete before.
    """

    state: StateId
    tokens: tuple[int, ...]
    want: Want
    decode: bool
    adapter: AdapterId | None = None


class ForwardLog:
    """The forwards of one model. Written on the device thread, read from any; keeps the newest 10,000 entries."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._forwards: deque[tuple[RowRecord, ...]] = deque(maxlen=_KEPT)
        self._count = 0
        self._states = 0

    def add_forward(self, rows: Sequence[RowRecord]) -> None:
        """Note one forward before it does its work."""
        with self._lock:
            self._count += 1
            self._forwards.append(tuple(rows))

    def add_state(self) -> None:
        """Note that a state was created or forked."""
        with self._lock:
            self._states += 1

    @property
    def forward_calls(self) -> int:
        """How many forwards were begun."""
        with self._lock:
            return self._count

    @property
    def states_created(self) -> int:
        """How many states were ever created or forked."""
        with self._lock:
            return self._states

    @property
    def forwards(self) -> list[tuple[RowRecord, ...]]:
        """The rows of each forward, oldest first."""
        with self._lock:
            return list(self._forwards)

    def fed(self, state: StateId) -> tuple[int, ...]:
        """All tokens that ``state`` was fed, rolled back ones too."""
        return tuple(token for rows in self.forwards for row in rows if row.state == state for token in row.tokens)

    def saw(self, text: str) -> bool:
        """Whether any state was fed ``text``: so whether a request that holds it ever reached the model."""
        states = {row.state for rows in self.forwards for row in rows}
        return any(text in text_of(self.fed(state)) for state in states)
