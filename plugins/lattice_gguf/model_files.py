"""Which files make up the GGUF model at a path: a file, the only model of a directory, or the shards of a split one.

Owns the naming convention of ``docs/gguf.md`` (ggml project). Looks at names only and must not know what files hold.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from lattice_core.errors import ModelError
from lattice_core.types import Match

if TYPE_CHECKING:
    from pathlib import Path

SCORE = 30
_SUFFIX = ".gguf"
_SHARD = re.compile(r"(?P<stem>.+)-(?P<number>[0-9]{5})-of-(?P<total>[0-9]{5})\.gguf", re.IGNORECASE)
# A projector or a draft head lies beside the model that it belongs to; it is no model itself.
_SIDECAR = re.compile(r"(mmproj|mtp)-", re.IGNORECASE)


def probe(path: Path) -> Match | None:
    """Whether ``path`` is a ``.gguf`` file or a directory that holds some."""
    if path.is_file():
        return Match(SCORE, path.name) if path.suffix.lower() == _SUFFIX else None
    names = [candidate.name for candidate in _candidates(path)] if path.is_dir() else []
    if not names:
        return None
    return Match(SCORE, names[0] if len(names) == 1 else f"{len(names)} GGUF files")


def model_files(path: Path) -> tuple[Path, ...]:
    """The files of the model at ``path``: one, or all shards in order.

    Raises ``ModelError`` when there is no model, when a directory holds several, or when a shard is missing.
    """
    if path.is_dir():
        path = _only_model(path)
    elif not path.exists():
        raise ModelError(f"{path}: no such file or directory")
    match = _SHARD.fullmatch(path.name)
    return _shards(path, match) if match else (path,)


def _candidates(directory: Path) -> list[Path]:
    files = sorted(entry for entry in directory.iterdir() if entry.suffix.lower() == _SUFFIX and entry.is_file())
    return [file for file in files if not _SIDECAR.match(file.name)]


def _only_model(directory: Path) -> Path:
    models: dict[str, Path] = {}
    for file in _candidates(directory):
        match = _SHARD.fullmatch(file.name)
        models.setdefault(match["stem"] if match else file.name, file)
    if not models:
        raise ModelError(f"{directory}: holds no *.gguf file")
    if len(models) > 1:
        names = ", ".join(file.name for file in models.values())
        raise ModelError(f"{directory}: holds {len(models)} GGUF models ({names}); name one of these files")
    return next(iter(models.values()))


def _shards(path: Path, match: re.Match[str]) -> tuple[Path, ...]:
    total = int(match["total"])
    present = {}
    for file in _candidates(path.parent):
        other = _SHARD.fullmatch(file.name)
        if other and other["stem"] == match["stem"] and other["total"] == match["total"]:
            present[int(other["number"])] = file
    missing = [number for number in range(1, total + 1) if number not in present] if total <= len(present) else None
    if total < 1 or missing is None or missing:
        raise ModelError(f"{path}: the model is split into {total} files of which {len(present)} are here; get the others")
    return tuple(present[number] for number in range(1, total + 1))
