"""Which files make up the adapter at a path: a directory as PEFT or mlx-lm saves it, or one safetensors file.

Owns the names that the two libraries give these files. Looks at names only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

from lattice_core.errors import ModelError
from lattice_core.types import Match

if TYPE_CHECKING:
    from pathlib import Path

PEFT_WEIGHTS, MLX_WEIGHTS, CONFIG = "adapter_model.safetensors", "adapters.safetensors", "adapter_config.json"
_PICKLED = "adapter_model.bin"
_SUFFIX = ".safetensors"
_SCORE = 50


@frozen
class AdapterFiles:
    """``weights`` holds the tensors. ``config`` says how they were made; None for a file that has none beside it."""

    weights: Path
    config: Path | None


def probe(path: Path) -> Match | None:
    """Whether ``path`` is a directory with an adapter's weights, or any safetensors file.

    A directory whose weights are pickled matches too: opening says what to do.
    """
    if path.is_dir():
        for name in (PEFT_WEIGHTS, MLX_WEIGHTS, _PICKLED):
            if (path / name).exists():
                return Match(_SCORE, name)
        return None
    return Match(_SCORE, path.name) if path.suffix.lower() == _SUFFIX and path.exists() else None


def adapter_files(path: Path) -> AdapterFiles:
    """The files of the adapter at ``path``; for a file, the configuration beside it.

    Raises ``ModelError`` where there is no adapter, where it is pickled, and for a directory without its configuration.
    """
    if not path.exists():
        raise ModelError(f"{path}: no such file or directory")
    if not path.is_dir():
        config = path.parent / CONFIG
        return AdapterFiles(path, config if config.exists() else None)
    present = [name for name in (PEFT_WEIGHTS, MLX_WEIGHTS) if (path / name).exists()]
    if not present:
        if (path / _PICKLED).exists():
            raise ModelError(
                f"{path}: {_PICKLED} is a pickle, which can run code and is never opened; load the adapter with PEFT and"
                f" save it again by save_pretrained, which writes {PEFT_WEIGHTS}"
            )
        raise ModelError(f"{path}: holds neither {PEFT_WEIGHTS} nor {MLX_WEIGHTS}")
    if len(present) > 1:
        raise ModelError(f"{path}: holds both {PEFT_WEIGHTS} and {MLX_WEIGHTS}; keep the one that {CONFIG} belongs to")
    if not (path / CONFIG).exists():
        raise ModelError(f"{path}: {CONFIG} is missing; it holds the adapter's scale, get it too")
    return AdapterFiles(path / present[0], path / CONFIG)
