"""Shows how far a measurement is: a bar on a terminal, elsewhere a plain line now and then. Looks at nothing but numbers."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self, TextIO

    from rich.progress import TaskID

_BETWEEN_LINES = 10.0


class EvalProgress(Protocol):
    """A context manager that is told what happens."""

    def report(self, what: str, done: int, total: int, note: str = "") -> None:
        """``done`` of ``total`` of ``what``; ``note`` is a short text beside it."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None, /
    ) -> None: ...


def progress_on(stream: TextIO) -> EvalProgress:
    """What suits ``stream``."""
    return BarProgress(stream) if stream.isatty() else PlainProgress(stream)


class PlainProgress:
    """Writes ``[lattice] scoring: 40%, perplexity 15.23`` lines, ten seconds apart at least."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._last = clock()

    def report(self, what: str, done: int, total: int, note: str = "") -> None:
        """See ``EvalProgress``."""
        now = self._clock()
        if now - self._last < _BETWEEN_LINES:
            return
        self._last = now
        percent = 100 * done // total if total else 100
        self._stream.write(f"[lattice] {what}: {percent}%{', ' if note else ''}{note}\n")
        self._stream.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return


class BarProgress:
    """One bar with the time left, which vanishes at the end."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console  # noqa: PLC0415  # only where there is a terminal
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn  # noqa: PLC0415  # as above

        self._bars = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TaskProgressColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}", markup=False),
            console=Console(file=stream),
            transient=True,
        )
        self._tasks: dict[str, TaskID] = {}

    def report(self, what: str, done: int, total: int, note: str = "") -> None:
        """See ``EvalProgress``."""
        if what not in self._tasks:
            for task in self._tasks.values():
                self._bars.update(task, visible=False)
            self._tasks[what] = self._bars.add_task(what, total=total, note=note)
        self._bars.update(self._tasks[what], completed=done, total=total, note=note)

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()
