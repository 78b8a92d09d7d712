"""Runs the work of a command on a thread of its own, while the calling thread stays open to Ctrl-C.

A model belongs to the thread that loaded it, and native code that computes there lets no signal through; whoever waits here
is interrupted at once. Knows no model.
"""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

Result = TypeVar("Result")
Report = tuple[Any, ...]


class StoppedError(Exception):
    """Ends the work after the calling thread was interrupted; nobody waits for it any more."""


def run_on_device_thread(work: Callable[[Callable[..., None]], Result], on_report: Callable[..., None]) -> Result:
    """Return what ``work(report)`` returns, or raise what it raises. ``on_report`` gets each report on the calling thread.

    When the calling thread is interrupted, the next call of ``report`` raises ``StoppedError`` inside ``work``.
    """
    reports: queue.SimpleQueue[Report | None] = queue.SimpleQueue()
    stopped = threading.Event()
    outcome: list[tuple[Result | None, BaseException | None]] = []

    def report(*values: Any) -> None:
        if stopped.is_set():
            raise StoppedError
        reports.put(values)

    def run() -> None:
        try:
            outcome.append((work(report), None))
        except BaseException as error:  # noqa: BLE001  # the calling thread raises it
            outcome.append((None, error))
        finally:
            reports.put(None)

    # A daemon, since an interrupted process must end without waiting for a long computation.
    thread = threading.Thread(target=run, name="lattice-eval", daemon=True)
    thread.start()
    try:
        while (values := reports.get()) is not None:
            on_report(*values)
        thread.join()
    finally:
        stopped.set()
    result, error = outcome[0]
    if error is not None:
        raise error
    return result  # type: ignore[return-value]  # it is None only where `work` returns None
