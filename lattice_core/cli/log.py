"""Messages on stderr: plain ``[lattice] ...`` lines through ``logging``, and the progress of loading."""

from __future__ import annotations

import logging
import sys
import time
from typing import TextIO

_BETWEEN_UPDATES = 0.1


class _Lines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        mark = "" if record.levelno == logging.INFO else f"{record.levelname.lower()}: "
        return f"[lattice] {mark}{text}"


class _Stderr(logging.StreamHandler[TextIO]):
    """Writes to what ``sys.stderr`` is at that moment; a closed or full stderr never breaks the caller."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        if self.stream is not None:
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


class LoadingProgress:
    """Shows how far loading is: a line that rewrites itself on a terminal, nothing more than the first line elsewhere.

    Called from the device thread, so it only writes text.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._live = False
        self._shown = 0.0

    def begin(self) -> None:
        """Say what is loading."""
        self._live = sys.stderr is not None and sys.stderr.isatty()
        if self._live:
            self._write(f"[lattice] loading {self._what} ...")
        else:
            logging.getLogger("lattice").info("loading %s ...", self._what)

    def __call__(self, done: int, total: int) -> None:
        """``done`` of ``total`` bytes are there."""
        now = time.monotonic()
        if self._live and total > 0 and now - self._shown >= _BETWEEN_UPDATES:
            self._shown = now
            self._write(f"\r[lattice] loading {self._what} ... {min(100, 100 * done // total):3d}%")

    def end(self) -> None:
        """Leave the line."""
        if self._live:
            self._live = False
            self._write("\n")

    @staticmethod
    def _write(text: str) -> None:
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except (OSError, ValueError, RuntimeError):
            # RuntimeError: a signal's handler came while this very stream was being written.
            return
