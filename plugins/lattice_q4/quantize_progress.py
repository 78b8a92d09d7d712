"""Shows how far a conversion is: a bar on a terminal, elsewhere a plain line about every tenth. Looks at numbers only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self, TextIO

_STEPS = 10
_WHAT = "quantising"


class QuantizeProgress(Protocol):
    """A context manager that is told how many values are done."""

    def report(self, done: int, total: int) -> None:
        """``done`` of ``total`` values are written."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None, /
    ) -> None: ...


def progress_on(stream: TextIO) -> QuantizeProgress:
    """What suits ``stream``."""
    return _Bar(stream) if stream.isatty() else _Lines(stream)


class _Lines:
    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._step = 0

    def report(self, done: int, total: int) -> None:
        step = _STEPS * done // max(total, 1)
        if step > self._step:
            self._step = step
            self._stream.write(f"[lattice] {_WHAT}: {100 * done // max(total, 1)}%\n")
            self._stream.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return


class _Bar:
    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console  # noqa: PLC0415  # only where there is a terminal
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn  # noqa: PLC0415  # as above

        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
        self._bars = Progress(*columns, console=Console(file=stream), transient=True)
        self._task = self._bars.add_task(_WHAT, total=None)

    def report(self, done: int, total: int) -> None:
        self._bars.update(self._task, completed=done, total=total)

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()
