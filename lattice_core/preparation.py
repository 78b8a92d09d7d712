"""Work that must not run on the device thread: rendering, tokenising, compiling, opening files. Each piece has a deadline.

Owns the threads for it. Knows nothing of what the work is.
"""

from __future__ import annotations

import concurrent.futures
from typing import TYPE_CHECKING, TypeVar

from lattice_core.errors import LatticeError, RequestError, ShuttingDownError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

_THREADS = 4


class PreparationPool:
    """A few threads."""

    def __init__(self) -> None:
        self._pool = concurrent.futures.ThreadPoolExecutor(_THREADS, thread_name_prefix="lattice-prepare")

    def run(
        self,
        what: str,
        work: Callable[[], T],
        seconds: float,
        *,
        refusal: type[LatticeError] = RequestError,
        late: Callable[[T], None] | None = None,
    ) -> T:
        """The result of ``work``, which ``what`` names in messages.

        Raises ``refusal`` after ``seconds``, ``ShuttingDownError`` once the pool is closed, the errors of Lattice as they are,
        and ``LatticeError`` with the cause for whatever else the work raises. ``late`` is given a result that came after the
        deadline.
        """
        try:
            future = self._pool.submit(work)
        except RuntimeError:
            raise ShuttingDownError("the engine is shutting down") from None
        try:
            return future.result(seconds)
        except concurrent.futures.TimeoutError as error:
            if future.done():  # the work's own
                raise _failure(what, error) from error
            if not future.cancel() and late is not None:
                future.add_done_callback(lambda done: late(done.result()) if done.exception() is None else None)
            raise refusal(f"{what} took longer than {seconds:g} s and was given up") from None
        except concurrent.futures.CancelledError:
            raise ShuttingDownError("the engine is shutting down") from None
        except LatticeError:
            raise
        except (Exception, SystemExit) as error:
            raise _failure(what, error) from error

    def close(self) -> None:
        """Take no more work; what runs is left to end by itself."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def _failure(what: str, error: BaseException) -> LatticeError:
    return LatticeError(f"{what} failed", detail=f"{type(error).__name__}: {error}")
