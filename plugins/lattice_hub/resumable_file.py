"""Brings one remote file to the disk in pieces that survive a killed process, and checks every byte of it before it counts.

It must not know what the file is for, nor which protocol it comes by.
"""

from __future__ import annotations

import hashlib
import io
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from lattice_hub.errors import PullError, storage_errors

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import BinaryIO

    from lattice_hub.hub_selection import RemoteFile

    Download = Callable[[RemoteFile, BinaryIO, int], None]

_BLOCK = 1 << 20


def fetch_file(remote: RemoteFile, target: Path, part: Path, download: Download, progress: Callable[[int], None]) -> str:
    """Have ``remote`` at ``target``, going on with the bytes in ``part`` if there are any; returns its SHA-256 in hex.

    ``download(remote, file, start)`` writes the bytes from ``start`` on. ``progress(bytes)`` is called as they arrive. What
    was fetched in several goes and hashes to something else is fetched once more as a whole.

    Raises:
        PullError: the download failed (``part`` keeps what arrived), or the content is not what the source announced.
    """
    resumed = _download_rest(remote, part, download, progress)
    sha256, right = _checked(part, remote)
    if not right and resumed:
        part.unlink()
        _download_rest(remote, part, download, progress)
        sha256, right = _checked(part, remote)
    if not right:
        part.unlink()
        raise PullError(f"{remote.name}: its SHA-256 is {sha256}, but {remote.digest} was announced; nothing was installed")
    target.parent.mkdir(parents=True, exist_ok=True)
    part.replace(target)
    return sha256


def checked_sha256(path: Path, remote: RemoteFile) -> str | None:
    """The SHA-256 of ``path`` if it is a file with the content of ``remote``, else None."""
    with suppress(OSError):
        if path.is_file() and path.stat().st_size == remote.size:
            sha256, right = _checked(path, remote)
            return sha256 if right else None
    return None


def _download_rest(remote: RemoteFile, part: Path, download: Download, progress: Callable[[int], None]) -> bool:
    """Complete ``part``; returns whether some of it was there before."""
    with _BoundedFile(part, remote, progress) as file:
        start = file.seek(0, io.SEEK_END)
        if start > remote.size:
            file.seek(0)
            file.truncate()
            start = 0
        progress(start)
        if start < remote.size:
            download(remote, file, start)
        file.flush()
        os.fsync(file.fileno())
        return start > 0


def _checked(path: Path, remote: RemoteFile) -> tuple[str, bool]:
    """SHA-256 of ``path``, and whether its content has the announced digest."""
    sha256 = hashlib.sha256()
    # Git names a file by the SHA-1 of "blob", its length, a zero byte and its content.
    git = hashlib.sha1(b"blob %d\0" % remote.size, usedforsecurity=False)
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            sha256.update(block)
            git.update(block)
    return sha256.hexdigest(), remote.digest in {f"sha256:{sha256.hexdigest()}", f"git-sha1:{git.hexdigest()}"}


class _BoundedFile(io.BufferedRandom):
    """A partial file that takes no more bytes than were announced and tells how many there are."""

    def __init__(self, path: Path, remote: RemoteFile, progress: Callable[[int], None]) -> None:
        # Not opened for appending: a server that ignores the offset makes the download start over at 0.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        super().__init__(io.FileIO(descriptor, "r+"))
        self._directory = path.parent
        self._remote = remote
        self._progress = progress

    def write(self, data: Any, /) -> int:
        end = self.tell() + len(data)
        if end > self._remote.size:
            raise PullError(f"{self._remote.name}: the server sends more than the announced {self._remote.size} bytes")
        with storage_errors(self._directory):
            written = super().write(data)
            self.flush()
        self._progress(end)
        return written
