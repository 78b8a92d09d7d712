"""Opening of files that nobody vouches for: regular ones only, never longer than what is allowed. Knows no format."""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING

from lattice_core.errors import ModelError

if TYPE_CHECKING:
    from pathlib import Path
    from typing import BinaryIO

# A named pipe without a writer would block the open for ever; with this flag it does not, and is refused below.
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC


def open_regular(path: Path, *, follow: bool = True) -> BinaryIO:
    """Open ``path`` for reading, unbuffered. ``follow`` says whether it may be a symbolic link.

    Raises ``ModelError`` for what cannot be opened and for what is no regular file.
    """
    try:
        # Asked before opening too: to open a device can have effects of its own.
        _check(os.stat(path, follow_symlinks=follow), path)  # noqa: PTH116 - the same call as for the descriptor below
        descriptor = os.open(path, _FLAGS | (0 if follow else os.O_NOFOLLOW))
    except OSError as error:
        if error.errno == errno.ELOOP and not follow:
            raise ModelError(_no_link(path)) from error
        raise ModelError(f"{path}: cannot be read: {error.strerror or error}") from error
    try:
        _check(os.fstat(descriptor), path)
    except BaseException:
        os.close(descriptor)
        raise
    return os.fdopen(descriptor, "rb", buffering=0)


def read_regular(path: Path, limit: int) -> bytes:
    """All bytes of a regular file or a link to one. Raises ``ModelError`` as ``open_regular``, and beyond ``limit`` bytes."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > limit:
            raise ModelError(f"{path}: has {size} bytes; at most {limit} are read")
        data = bytearray(size)
        read_into(file, data, path)
    return bytes(data)


def read_into(file: BinaryIO, target: bytearray | memoryview, path: Path) -> None:
    """Fill ``target`` from the position of ``file``. Raises ``ModelError`` where the file ends before."""
    view = memoryview(target)
    while view.nbytes:
        try:
            count = file.readinto(view)  # type: ignore[attr-defined]  # raw files have it, BinaryIO does not name it
        except OSError as error:
            raise ModelError(f"{path}: cannot be read: {error.strerror or error}") from error
        if not count:
            raise ModelError(f"{path}: became shorter while it was read; get it again")
        view = view[count:]


def is_there(path: Path) -> bool:
    """Whether there is anything by this name: a link to nowhere counts, so that it is an error and not overlooked."""
    return os.path.lexists(path)


def _check(status: os.stat_result, path: Path) -> None:
    if stat.S_ISLNK(status.st_mode):
        raise ModelError(_no_link(path))
    if stat.S_ISDIR(status.st_mode):
        raise ModelError(f"{path}: is a directory, not a file")
    if not stat.S_ISREG(status.st_mode):
        raise ModelError(f"{path}: is no regular file (a pipe, a socket or a device)")


def _no_link(path: Path) -> str:
    return f"{path}: is a symbolic link, which is not followed to a tensor; put the file itself there"
