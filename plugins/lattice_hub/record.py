"""The file ``lattice.json`` that a finished pull leaves in a model's directory: where the model is from and what it holds.

Its presence says that a directory is complete and was made by ``lattice pull``. It must not know how files are fetched.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from attrs import asdict, frozen

from lattice_core.model_names import RECORD_NAME

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_VERSION = 1
_MAX_RECORD_BYTES = 16 << 20
_BLOCK = 1 << 20


@frozen
class RecordedFile:
    """One file: path relative to the directory, bytes, SHA-256 in hex, and the digest that its source knows it by."""

    name: str
    size: int
    sha256: str
    digest: str = ""


@frozen
class Record:
    """What was pulled: the source's name, the reference as given, the exact revision, and the files."""

    source: str
    reference: str
    revision: str
    files: tuple[RecordedFile, ...]


def read_record(directory: Path) -> Record | None:
    """The record in ``directory``; None where there is none, or none that this version wrote."""
    path = directory / RECORD_NAME
    try:
        with path.open("rb") as file:
            data: Any = json.loads(file.read(_MAX_RECORD_BYTES))
        if data.pop("version") != _VERSION:
            return None
        return Record(files=tuple(RecordedFile(**entry) for entry in data.pop("files")), **data)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def write_record(directory: Path, record: Record) -> None:
    """Write the record so that it is there wholly or not at all."""
    scratch = directory / f".{RECORD_NAME}"
    with scratch.open("w", encoding="utf-8") as file:
        json.dump({"version": _VERSION, **asdict(record)}, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    scratch.replace(directory / RECORD_NAME)


def fault(directory: Path, record: Record) -> str | None:
    """What is wrong with the files of a recorded directory by name and size, in words; None where nothing is."""
    for entry in record.files:
        try:
            size = (directory / entry.name).stat().st_size
        except OSError:
            return f"{entry.name} is missing"
        if size != entry.size:
            return f"{entry.name} has {size} bytes instead of {entry.size}"
    return None


def has_sha256(path: Path, expected: str, progress: Callable[[int], None] | None = None) -> bool:
    """Whether the file's content hashes to ``expected``; ``progress(bytes_read)`` is called on the way."""
    digest = hashlib.sha256()
    done = 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
            done += len(block)
            if progress is not None:
                progress(done)
    return digest.hexdigest() == expected


def foreign_entries(directory: Path) -> list[str]:
    """Names directly in ``directory`` that no pull has put there."""
    record = read_record(directory)
    known = {RECORD_NAME, f".{RECORD_NAME}"}
    if record is not None:
        known.update(entry.name.partition("/")[0] for entry in record.files)
    with suppress(OSError):
        return sorted(entry.name for entry in directory.iterdir() if entry.name not in known)
    return []
