"""Opening of files that nobody vouches for: regular ones only, never longer than what is allowed. Knows no format."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from lattice_core.errors import ModelError

if TYPE_CHECKING:
    from pathlib import Path
    from typing import BinaryIO

# A named pipe without a writer would block the open for ever; with this flag it does not, and is refused below.
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC


def open_regular(path: Path) -> BinaryIO:
    """Open ``path`` for reading; symbolic links are followed, since the caches of hubs are made of them.

    Raises ``ModelError`` for what cannot be opened and for what is no regular file.
    """
    try:
        # Asked before opening too: to open a device can have effects of its own.
        _check(os.stat(path), path)  # noqa: PTH116  # the same call as for the descriptor below
        descriptor = os.open(path, _FLAGS)
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror or error}") from error
    try:
        _check(os.fstat(descriptor), path)
    except BaseException:
        os.close(descriptor)
        raise
    return os.fdopen(descriptor, "rb")


def read_regular(path: Path, limit: int) -> bytes:
    """All bytes of a regular file. Raises ``ModelError`` as ``open_regular``, and for a file of more than ``limit`` bytes."""
    with open_regular(path) as file:
        try:
            data = file.read(limit + 1)
        except OSError as error:
            raise ModelError(f"{path}: cannot be read: {error.strerror or error}") from error
        if len(data) > limit:
            size = max(os.fstat(file.fileno()).st_size, len(data))
            raise ModelError(f"{path}: has {size} bytes; at most {limit} are read")
    return data


def _check(status: os.stat_result, path: Path) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise ModelError(f"{path}: is a directory, not a file")
    if not stat.S_ISREG(status.st_mode):
        raise ModelError(f"{path}: is no regular file (a pipe, a socket or a device)")
