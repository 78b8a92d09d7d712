"""Shows how far a pull is: a bar on a terminal, elsewhere a plain line about every tenth.

Looks at nothing but the numbers it is told; ``rich`` is imported only where there is a terminal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from lattice_hub.sizes import readable

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self, TextIO

    from rich.progress import TaskID

_STEPS = 10
_UNKNOWN_TOTAL_STEP = 64_000_000


class PullProgress(Protocol):
    """A context manager whose ``report`` is handed to a source; ``used`` says whether it was ever called."""

    used: bool

    def report(self, what: str, done: int, total: int | None) -> None:
        """``done`` of ``total`` bytes of ``what`` are there."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None, /
    ) -> None: ...


def progress_on(stream: TextIO) -> PullProgress:
    """What suits ``stream``."""
    return BarProgress(stream) if stream.isatty() else PlainProgress(stream)


class PlainProgress:
    """Writes ``[lattice] downloading x: 40% (39 MB of 98 MB)`` lines."""

    def __init__(self, stream: TextIO) -> None:
        self.used = False
        self._stream = stream
        self._last: tuple[str, int] | None = None

    def report(self, what: str, done: int, total: int | None) -> None:
        """See ``PullProgress``."""
        self.used = True
        step = _STEPS * done // total if total else done // _UNKNOWN_TOTAL_STEP
        if self._last == (what, step):
            return
        self._last = (what, step)
        amount = f"{100 * done // total}% ({readable(done)} of {readable(total)})" if total else readable(done)
        self._stream.write(f"[lattice] {what}: {amount}\n")
        self._stream.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return


class BarProgress:
    """A bar with speed and time left, one for each thing that is reported."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console  # noqa: PLC0415 - only where there is a terminal
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn  # noqa: PLC0415 - as above

        self.used = False
        self._bars = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=Console(file=stream),
        )
        self._tasks: dict[str, TaskID] = {}

    def report(self, what: str, done: int, total: int | None) -> None:
        """See ``PullProgress``."""
        self.used = True
        if what not in self._tasks:
            # What arrived in an earlier pull is no part of this one's speed.
            self._tasks[what] = self._bars.add_task(what, total=total, completed=done)
        self._bars.update(self._tasks[what], completed=done, total=total)

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()
