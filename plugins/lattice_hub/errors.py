"""The error of a pull that did not work out, and how errors of the file system become one."""

from __future__ import annotations

import errno
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lattice_core.errors import LatticeError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS}


class PullError(LatticeError):
    """A model that could not be fetched; nothing was installed."""

    code = "pull_failed"


class UnreachableError(PullError):
    """The place where a model is from cannot be asked now; what is already here may do."""

    code = "source_unreachable"


@contextmanager
def storage_errors(cache: Path) -> Iterator[None]:
    """Turn errors of writing under ``cache`` into a ``PullError`` that says what to do."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        if error.errno in _FULL:
            msg = f"no space left in {cache} ({reason}): free some, or set LATTICE_MODEL_CACHE to a directory on another disk"
        elif error.errno in _FORBIDDEN:
            msg = f"cannot write to {cache} ({reason}): set LATTICE_MODEL_CACHE to a directory that you may write to"
        else:
            msg = f"cannot store the model in {cache}: {reason}" + (f" ({error.filename})" if error.filename else "")
        raise PullError(msg) from error
