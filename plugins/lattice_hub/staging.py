"""How files of a pull become a model: locks, scratch directories, and the rename that puts a finished one into place.

Everything happens below ``CACHE/.partial``, on the file system of the cache, so that the last step is one rename:

    NAME.lock      held (flock) by the pull of NAME, and by the children that work for it
    NAME.tmp-XXXX  scratch that cannot be resumed; without a holder of the lock it is rubbish
    NAME.pull      files that a later pull of NAME goes on with
    NAME.old       the directory that is being replaced

It must not know where files come from.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import tempfile
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from lattice_hub.errors import PullError
from lattice_hub.record import foreign_entries
from lattice_hub.sizes import readable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PARTIAL = ".partial"
_SCRATCH = ".tmp-"
_RESUMABLE = ".pull"
_OLD = ".old"

log = logging.getLogger("lattice.hub")


@contextmanager
def pull_lock(cache: Path, name: str) -> Iterator[int]:
    """Hold the pull of ``name``; waits for another process that does, and clears what killed pulls left behind.

    Yields the descriptor of the lock, for children that must not outlive it.
    """
    partial = cache / PARTIAL
    partial.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(partial / f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            log.info("another process is pulling %s; waiting for it", name)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        _restore(partial / f"{name}{_OLD}", cache / name)
        _sweep(partial, name)
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def scratch_directory(cache: Path, name: str) -> Iterator[Path]:
    """A directory of this pull alone; gone afterwards, however the pull ends."""
    directory = tempfile.mkdtemp(prefix=f"{name}{_SCRATCH}", dir=cache / PARTIAL)
    try:
        yield cache / PARTIAL / directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def resumable_directory(cache: Path, name: str) -> Path:
    """The directory whose files a later pull of ``name`` goes on with."""
    directory = cache / PARTIAL / f"{name}{_RESUMABLE}"
    directory.mkdir(exist_ok=True)
    return directory


def resumable_pulls(cache: Path) -> list[tuple[str, Path]]:
    """The pulls that stopped half-way and can be resumed: name and directory."""
    with suppress(OSError):
        found = [entry for entry in (cache / PARTIAL).iterdir() if entry.name.endswith(_RESUMABLE) and entry.is_dir()]
        return sorted((entry.name.removesuffix(_RESUMABLE), entry) for entry in found)
    return []


def require_replaceable(directory: Path) -> None:
    """Raise ``PullError`` if ``directory`` holds what no pull has put there, which replacing it would delete."""
    if strangers := foreign_entries(directory):
        shown = ", ".join(strangers[:3]) + (" ..." if len(strangers) > 3 else "")  # noqa: PLR2004 - as many as are shown
        raise PullError(f"{directory} holds what `lattice pull` did not put there ({shown}): move it away, then pull again")


def require_space(cache: Path, needed: int, what: str) -> None:
    """Raise ``PullError`` unless the file system of ``cache`` has ``needed`` bytes free."""
    free = shutil.disk_usage(cache).free
    if free < needed:
        raise PullError(
            f"{what} needs {readable(needed)}, {cache} has {readable(free)} free: free some space, or set LATTICE_MODEL_CACHE"
            " to a directory on another disk"
        )


def install(ready: Path, cache: Path, name: str) -> Path:
    """Put the finished directory ``ready`` where ``name`` is looked up, in place of what was there.

    A process killed between the two renames leaves the old directory aside; the next pull puts it back.
    """
    final = cache / name
    old = cache / PARTIAL / f"{name}{_OLD}"
    sync_tree(ready)
    if os.path.lexists(final):
        final.rename(old)
    ready.rename(final)
    _sync_directory(cache)
    _remove(old)
    return final


def sync_tree(directory: Path) -> None:
    """Have the names in ``directory`` and below on the disk; the files' contents are synced by who writes them."""
    for path, _, _ in os.walk(directory):
        _sync_directory(path)


def _restore(old: Path, final: Path) -> None:
    if not os.path.lexists(old):
        return
    if os.path.lexists(final):
        _remove(old)
    else:
        old.rename(final)


def _sweep(partial: Path, held: str) -> None:
    """Remove scratch directories whose pull is dead: its lock is ours, or free."""
    for entry in list(partial.iterdir()):
        name, separator, _ = entry.name.rpartition(_SCRATCH)
        if separator and (name == held or _is_free(partial / f"{name}.lock")):
            shutil.rmtree(entry, ignore_errors=True)


def _is_free(lock: Path) -> bool:
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    else:
        return True
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    if path.is_symlink():
        path.unlink()
    else:
        shutil.rmtree(path, ignore_errors=True)


def _sync_directory(path: Path | str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
