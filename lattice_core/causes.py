"""One-line wording of a caught exception, with the place in the source where it was raised.

Knows nothing of plugins or requests; used wherever foreign code is called and its failure is attributed.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType

LONGEST = 300
_OWN = str(Path(__file__).parent)
_MACHINERY = ("<frozen ", "<attrs generated", _OWN)


def cause_of(error: BaseException) -> str:
    """``Type: message (file.py:12)`` in one line of at most about 300 characters."""
    try:
        text = error.msg if isinstance(error, SyntaxError) else str(error)
    except Exception:  # noqa: BLE001  # a foreign __str__ may raise anything
        text = "(its message cannot be shown)"
    text = " ".join(text.split())
    if len(text) > LONGEST:
        text = text[: LONGEST - 3] + "..."
    line = f"{type(error).__name__}: {text}" if text else type(error).__name__
    place = _place(error)
    return f"{line} ({place})" if place and place not in line else line


def _place(error: BaseException) -> str | None:
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return f"{Path(error.filename).name}:{error.lineno}"
    found: str | None = None
    step: TracebackType | None = error.__traceback__
    while step is not None:
        filename = step.tb_frame.f_code.co_filename
        if not filename.startswith(_MACHINERY) and not _is_library(filename):
            found = f"{Path(filename).name}:{step.tb_lineno}"
        step = step.tb_next
    return found


def _is_library(filename: str) -> bool:
    parts = Path(filename).parts
    return any(name in parts for name in ("pluggy", "attr", "importlib"))
