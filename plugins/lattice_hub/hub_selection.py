"""Which files of a hub repository are pulled. Pure decisions over names and sizes: no network, no disk.

Pickles and code are never taken, whatever is asked for: weights come as safetensors or GGUF only.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from attrs import frozen

from lattice_core.errors import UsageError
from lattice_core.model_names import RECORD_NAME
from lattice_hub.errors import PullError
from lattice_hub.sizes import readable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

TEXT_FILES = ("*.json", "*.jinja", "merges.txt", "vocab.txt", "tokenizer.model", "LICENSE*")
REFUSED_SUFFIXES = frozenset(
    {".bin", ".ckpt", ".dll", ".dylib", ".exe", ".pickle", ".pkl", ".pt", ".pth", ".py", ".pyc", ".sh", ".so"}
)
_MAX_FILE_BYTES = 1 << 44
_MAX_FILES = 10_000
_MAX_NAME_LENGTH = 255
_SHOWN = 12
_SHARD = re.compile(r"-\d{5}-of-(\d{5})(?=\.gguf$)")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


@frozen
class RemoteFile:
    """One file of a repository: its path, bytes, and ``sha256:HEX`` or ``git-sha1:HEX`` of its content."""

    name: str
    size: int
    digest: str


def select_files(repository: str, files: Sequence[RemoteFile], include: Sequence[str]) -> tuple[RemoteFile, ...]:
    """The files to pull, in the order of their names.

    ``include`` are shell patterns over whole paths (``*`` matches ``/`` too); without any, the safetensors in the root with
    configuration, tokenizer and chat template, or else the only GGUF model (all shards of it).

    Raises:
        UsageError: nothing matches, or there are several GGUF models to choose from.
        PullError: the repository has nothing that could be run, or a name or size that no honest one has.
    """
    allowed = [file for file in files if _suffix(file) not in REFUSED_SUFFIXES and file.name != RECORD_NAME]
    chosen = _matching(allowed, include) if include else _default_files(repository, allowed)
    if not chosen:
        offered = _listed(allowed) or "no file that is neither code nor pickle"
        raise UsageError(f"--include {' '.join(include)} matches no file of {repository} that may be pulled; it has {offered}")
    if len(chosen) > _MAX_FILES:
        raise PullError(f"{repository}: {len(chosen)} files are more than {_MAX_FILES}; choose some with --include")
    for file in chosen:
        _refuse_dishonest(repository, file)
    return tuple(sorted(chosen, key=lambda file: file.name))


def _default_files(repository: str, files: list[RemoteFile]) -> list[RemoteFile]:
    root = [file for file in files if "/" not in file.name]
    weights = [file for file in root if file.name.endswith(".safetensors")]
    if weights:
        # Some repositories carry the same weights twice, the second time under another library's names.
        named = [file for file in weights if file.name.startswith("model")] or weights
        return named + _matching(root, TEXT_FILES)
    models = _gguf_models(root) or _gguf_models(files)
    if len(models) == 1:
        return next(iter(models.values()))
    if models:
        shown = ", ".join(f"{name} ({readable(sum(part.size for part in parts))})" for name, parts in sorted(models.items()))
        example = min(models, key=lambda name: sum(part.size for part in models[name]))
        raise UsageError(
            f"{repository} has {len(models)} GGUF models: {shown}; choose with --include, such as --include '*{example}'"
        )
    raise PullError(f"{repository} holds neither safetensors nor GGUF weights; it has {_listed(files) or 'no usable file'}")


def _gguf_models(files: Iterable[RemoteFile]) -> dict[str, list[RemoteFile]]:
    """GGUF models by the pattern that matches their files; projectors of vision models are not models."""
    models: dict[str, list[RemoteFile]] = {}
    for file in files:
        if file.name.endswith(".gguf") and not PurePosixPath(file.name).name.startswith("mmproj"):
            models.setdefault(_SHARD.sub(r"-*-of-\1", file.name), []).append(file)
    return models


def _matching(files: list[RemoteFile], patterns: Sequence[str]) -> list[RemoteFile]:
    return [file for file in files if any(fnmatchcase(file.name, pattern) for pattern in patterns)]


def _refuse_dishonest(repository: str, file: RemoteFile) -> None:
    parts = file.name.split("/")
    bad_part = any(part in {"", ".", ".."} or part.startswith(".") or len(part.encode()) > _MAX_NAME_LENGTH for part in parts)
    if bad_part or "\\" in file.name or _CONTROL.search(file.name):
        raise PullError(f"{repository} has a file named {file.name!r}, which does not stay inside a model's directory: refused")
    if not 0 <= file.size <= _MAX_FILE_BYTES:
        raise PullError(f"{repository}: {file.name} is said to have {file.size} bytes; at most {_MAX_FILE_BYTES} are taken")


def _listed(files: Sequence[RemoteFile]) -> str:
    names = ", ".join(f"{file.name!r} ({readable(max(file.size, 0))})" for file in files[:_SHOWN])
    return names + (f" and {len(files) - _SHOWN} more" if len(files) > _SHOWN else "")


def _suffix(file: RemoteFile) -> str:
    return PurePosixPath(file.name).suffix.lower()
