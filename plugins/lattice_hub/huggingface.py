"""The model source ``huggingface``: repositories of the Hugging Face hub. Owns the order of the steps of such a pull.

Files arrive one after another in a directory that a later pull goes on with; when all are there and right, it is renamed
to ``CACHE/ORG--NAME``.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from lattice_core.errors import UsageError
from lattice_hub.errors import UnreachableError, storage_errors
from lattice_hub.hub_selection import select_files
from lattice_hub.record import Record, RecordedFile, fault, has_sha256, read_record, write_record
from lattice_hub.resumable_file import checked_sha256, fetch_file
from lattice_hub.staging import install, log, pull_lock, require_replaceable, require_space, resumable_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from lattice_core.descriptors import Settings
    from lattice_hub.hub_access import Hub
    from lattice_hub.hub_selection import RemoteFile

    Report = Callable[[str, int, int | None], None]

_REFERENCE = re.compile(r"hf:(?P<repository>[\w][\w.-]*/[\w][\w.-]*)(@(?P<revision>[\w][\w./-]*))?", re.ASCII)
_SPARE_BYTES = 1 << 20
_PARTS = "parts"
_READY = "ready"


class HuggingFaceSource:
    """Fetches a model from the hub at ``HF_ENDPOINT``.

    ``settings.own``: ``verify`` hashes the files that are already there and fetches damaged ones again; ``force`` fetches
    all of them again.
    """

    def __init__(self, settings: Settings) -> None:
        self._force = bool(settings.own.get("force"))
        self._verify = bool(settings.own.get("verify"))

    def pull(self, reference: str, cache: Path, include: Sequence[str], report: Report) -> Path:
        """Bring ``hf:ORG/NAME[@REVISION]`` into ``cache``; see ``ModelSource.pull``.

        Files that earlier pulls of the same model brought stay, brought to the same revision.
        """
        match = _REFERENCE.fullmatch(reference)
        if match is None or ".." in reference:
            raise UsageError(f"{reference!r} is not a reference: write hf:ORG/NAME or hf:ORG/NAME@REVISION")
        repository = match["repository"]
        name = repository.replace("/", "--")
        # The library reads it when it is imported; unless the user says otherwise, nothing but the pull itself is asked for.
        os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
        from lattice_hub.hub_access import Hub  # noqa: PLC0415 - the hub's library is slow to import

        hub = Hub(repository, match["revision"])
        with storage_errors(cache):
            try:
                commit, files = hub.listing()
            except UnreachableError as error:
                if self._force or self._verify or not _will_do(cache / name, reference, include):
                    raise
                log.warning("%s; using what is here", error.message)
                return cache / name
            with pull_lock(cache, name):
                wanted = self._wanted(repository, files, include, cache / name)
                if not self._force and self._is_there(cache / name, commit, wanted, report):
                    return cache / name
                require_replaceable(cache / name)
                staging = resumable_directory(cache, name)
                brought = self._bring(hub, wanted, staging, cache / name, report)
                write_record(staging / _READY, Record("huggingface", reference, commit, brought))
                final = install(staging / _READY, cache, name)
                shutil.rmtree(staging, ignore_errors=True)
                return final

    def _wanted(self, repository: str, files: Sequence[RemoteFile], include: Sequence[str], final: Path) -> list[RemoteFile]:
        """What is asked for now, and what earlier pulls asked for as far as the repository still has it."""
        record = read_record(final)
        kept = {entry.name for entry in record.files} if record else set()
        chosen = {file.name for file in select_files(repository, files, include)}
        return [file for file in files if file.name in chosen | kept]

    def _is_there(self, final: Path, commit: str, wanted: Sequence[RemoteFile], report: Report) -> bool:
        record = read_record(final)
        if record is None or record.revision != commit or fault(final, record) is not None:
            return False
        have = {entry.name: entry for entry in record.files}
        if any(file.name not in have or have[file.name].digest != file.digest for file in wanted):
            return False
        label = f"checking {final.name}"
        return not self._verify or all(
            has_sha256(final / entry.name, entry.sha256, _part_of(report, label, 0, entry.size)) for entry in record.files
        )

    def _bring(
        self, hub: Hub, wanted: Sequence[RemoteFile], staging: Path, final: Path, report: Report
    ) -> tuple[RecordedFile, ...]:
        """Have all wanted files below ``staging``; takes over what an earlier pull left there or installed."""
        ready, parts = staging / _READY, staging / _PARTS
        if self._force:
            shutil.rmtree(ready, ignore_errors=True)
            shutil.rmtree(parts, ignore_errors=True)
        ready.mkdir(exist_ok=True)
        parts.mkdir(exist_ok=True)
        _remove_others(ready, {file.name for file in wanted})
        _remove_others(parts, {_part_name(file) for file in wanted})
        hashes: dict[str, str] = {}
        for file in wanted:
            found = checked_sha256(ready / file.name, file) or (None if self._force else _taken_over(final, ready, file))
            if found is not None:
                hashes[file.name] = found
        missing = [file for file in wanted if file.name not in hashes]
        arrived = sum(path.stat().st_size for path in parts.iterdir())
        require_space(staging, sum(file.size for file in missing) - arrived + _SPARE_BYTES, final.name)
        label, total = f"downloading {final.name}", sum(file.size for file in wanted)
        done = total - sum(file.size for file in missing)
        for file in missing:
            progress = _part_of(report, label, done, total)
            hashes[file.name] = fetch_file(file, ready / file.name, parts / _part_name(file), hub.download, progress)
            done += file.size
        return tuple(RecordedFile(file.name, file.size, hashes[file.name], file.digest) for file in wanted)


def _part_of(report: Report, label: str, before: int, total: int) -> Callable[[int], None]:
    """Reports the bytes of one file as part of ``total``."""
    return lambda done: report(label, before + done, total)


def _will_do(final: Path, reference: str, include: Sequence[str]) -> bool:
    """Whether what is installed answers ``reference`` without asking the hub what is new."""
    record = read_record(final)
    if record is None or record.reference != reference or fault(final, record) is not None:
        return False
    return all(any(fnmatchcase(entry.name, pattern) for entry in record.files) for pattern in include)


def _taken_over(final: Path, ready: Path, file: RemoteFile) -> str | None:
    """Link the installed file of the same content into ``ready``; its SHA-256, or None where there is none."""
    sha256 = checked_sha256(final / file.name, file)
    if sha256 is None:
        return None
    target = ready / file.name
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    try:
        target.hardlink_to((final / file.name).resolve())
    except OSError:  # a file system without links
        shutil.copyfile(final / file.name, target)
    return sha256


def _remove_others(directory: Path, keep: set[str]) -> None:
    for path, _, names in os.walk(directory):
        for name in names:
            entry = directory / path / name
            if entry.relative_to(directory).as_posix() not in keep:
                entry.unlink()


def _part_name(file: RemoteFile) -> str:
    return hashlib.sha256(f"{file.name}\0{file.digest}".encode()).hexdigest()[:32]
