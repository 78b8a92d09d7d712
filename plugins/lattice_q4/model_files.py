"""Which files make up a KHQ4 model: the directory's ``.q4`` and ``.f16`` files.

Owns the names in such a directory. Looks at names only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lattice_core.errors import ModelError
from lattice_core.types import Match

if TYPE_CHECKING:
    from pathlib import Path

SCORE = 40
CONFIG, INDEX = "config.json", "quantize_index.json"
PACKED_SUFFIX, HALF_SUFFIX = ".q4", ".f16"
# Tensors of other files joined by the reference engine for its own use: a cache, no part of the model.
_CACHE_PREFIX = "merged_qkvz_"


def probe(path: Path) -> Match | None:
    """Whether ``path`` is a directory in which any name ends in ``.q4``."""
    if not path.is_dir():
        return None
    names = sorted(entry.name for entry in path.iterdir() if entry.name.endswith(PACKED_SUFFIX))
    if not names:
        return None
    return Match(SCORE, names[0] if len(names) == 1 else f"{len(names)} files *{PACKED_SUFFIX}")


def tensor_files(directory: Path) -> tuple[str, ...]:
    """The names of all files in a directory that hold a tensor, sorted. Raises ``ModelError`` where there is no directory."""
    if not directory.exists():
        raise ModelError(f"{directory}: no such directory")
    if not directory.is_dir():
        raise ModelError(f"{directory}: is a file; name the directory that holds all files of the model")
    suffixes = (PACKED_SUFFIX, HALF_SUFFIX)
    names = (entry.name for entry in directory.iterdir() if entry.name.endswith(suffixes))
    return tuple(sorted(name for name in names if not name.startswith(_CACHE_PREFIX)))
