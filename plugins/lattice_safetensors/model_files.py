"""Which files make up the safetensors model at a path: one file, or the shards that an index names.

Owns the names that Hugging Face's libraries and mlx-lm give these files. Looks at names only.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from attrs import frozen

from lattice_core.errors import ModelError
from lattice_core.types import Match

if TYPE_CHECKING:
    from pathlib import Path

SCORE = 50
_SCORE_WITHOUT_INDEX = 10
SINGLE, INDEX, CONFIG = "model.safetensors", "model.safetensors.index.json", "config.json"
_SUFFIX = ".safetensors"
_SHARD = re.compile(r"model-[0-9]{5}-of-[0-9]{5}\.safetensors")
_ADAPTER = re.compile(r"(.*[-_])?adapters?([-_]model)?\.safetensors", re.IGNORECASE)


@frozen
class ModelFiles:
    """``directory`` holds config.json and the tokenizer; the weights are in ``single``, or where ``index`` says."""

    directory: Path
    single: Path | None = None
    index: Path | None = None


def probe(path: Path) -> Match | None:
    """Whether ``path`` is a directory of safetensors weights, or one of their files beside its config.json.

    Shards without their index match too, below every other format: only opening can say what is missing.
    """
    if path.is_dir():
        for name in (SINGLE, INDEX):
            if (path / name).exists():
                return Match(SCORE, name)
        shards = _shards(path)
        return Match(_SCORE_WITHOUT_INDEX, f"{len(shards)} shards without {INDEX}") if shards else None
    if path.suffix.lower() != _SUFFIX or _ADAPTER.fullmatch(path.name) or not path.exists():
        return None
    return Match(SCORE, path.name) if (path.parent / CONFIG).is_file() else None


def model_files(path: Path) -> ModelFiles:
    """The files of the model at ``path``; a single file wins over an index. A shard stands for all.

    Raises ``ModelError`` where there is no model, and for shards without an index.
    """
    if not path.exists():
        raise ModelError(f"{path}: no such file or directory")
    if not path.is_dir():
        if not _SHARD.fullmatch(path.name):
            return ModelFiles(path.parent, single=path)
        path = path.parent
    elif (path / SINGLE).exists():
        return ModelFiles(path, single=path / SINGLE)
    if (path / INDEX).exists():
        return ModelFiles(path, index=path / INDEX)
    shards = _shards(path)
    if shards:
        raise ModelError(f"{path}: the index {INDEX} is missing beside {len(shards)} shards such as {shards[0]}; get it too")
    raise ModelError(f"{path}: holds neither {SINGLE} nor {INDEX}")


def _shards(directory: Path) -> list[str]:
    return sorted(entry.name for entry in directory.iterdir() if _SHARD.fullmatch(entry.name))
