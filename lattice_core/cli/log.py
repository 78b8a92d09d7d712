"""Messages on stderr: plain ``[lattice] ...`` lines through ``logging``, and the progress of loading."""

from __future__ import annotations

import logging
import sys
import time
from typing import TextIO

_BETWEEN_UPDATES = 0.1
_CLEAR = "\r\x1b[K"


class _Lines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        mark = "" if record.levelno == logging.INFO else f"{record.levelname.lower()}: "
        return f"[lattice] {mark}{text}"


class _Stderr(logging.StreamHandler[TextIO]):
    """Writes to what ``sys.stderr`` is at that moment; a closed or full stderr never breaks the caller."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)
        self.clear_first = False
        """Whether a line that rewrites itself stands where the next message goes."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        if self.stream is None:
            return
        if self.clear_first:
            self.clear_first = False
            write_stderr(_CLEAR)
        super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  # logging's own name
        del record


def set_up_logging(*, debug: bool) -> None:
    """Send what the logger ``lattice`` and its children say to stderr, once per process; the level follows ``debug``."""
    logger = logging.getLogger("lattice")
    logger.setLevel(logging.DEBUG if debug else logging.INFO)
    logger.propagate = False
    if not any(isinstance(handler, _Stderr) for handler in logger.handlers):
        handler = _Stderr()
        handler.setFormatter(_Lines("%(message)s"))
        logger.addHandler(handler)


def is_debugging() -> bool:
    """Whether tracebacks are wanted."""
    return logging.getLogger("lattice").isEnabledFor(logging.DEBUG)


def write_stderr(text: str) -> None:
    """Write now; a stderr that is closed or full loses the text."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except (OSError, ValueError, RuntimeError, AttributeError):
        # RuntimeError: a signal's handler came while this very stream was being written. AttributeError: there is none.
        return


class LoadingProgress:
    """Shows how far loading is: below its first line, on a terminal, a line that rewrites itself and vanishes at the end.

    Called from the device thread, so it only writes text.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._live = False
        self._shown = 0.0
        self._handlers = [handler for handler in logging.getLogger("lattice").handlers if isinstance(handler, _Stderr)]

    def begin(self) -> None:
        """Say what is loading."""
        self._live = sys.stderr is not None and sys.stderr.isatty()
        logging.getLogger("lattice").info("loading %s ...", self._what)

    def __call__(self, done: int, total: int) -> None:
        """``done`` of ``total`` bytes are there."""
        now = time.monotonic()
        if self._live and total > 0 and now - self._shown >= _BETWEEN_UPDATES:
            self._shown = now
            write_stderr(f"{_CLEAR}[lattice] {min(100, 100 * done // total):3d}%")
            for handler in self._handlers:
                handler.clear_first = True

    def end(self) -> None:
        """Take the line away."""
        if self._live:
            self._live = False
            if any(handler.clear_first for handler in self._handlers):
                write_stderr(_CLEAR)
            for handler in self._handlers:
                handler.clear_first = False
