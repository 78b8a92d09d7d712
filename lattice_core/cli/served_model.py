"""The model of a run: where it is, the name that it is served under, and a tokenizer from elsewhere. Loads no weights."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lattice_core.errors import ModelError
from lattice_core.model_names import model_cache, resolve_model

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lattice_core.protocols import Checkpoint
    from lattice_core.types import TensorData, TensorSpec

_STRENGTH = {"flag": 0, "environment": 1, "config": 2, "default": 3}


def model_path(
    core: Mapping[str, Any], sources: Mapping[str, str], environ: Mapping[str, str], aliases: Mapping[str, str]
) -> Path:
    """The path of the model to load. Raises ``ModelError`` with the way to get it.

    ``model-dir`` wins over ``model``, unless only ``model`` was said where it counts more (a flag against a variable).
    """
    directory = core["model-dir"]
    if directory is not None and _STRENGTH[sources["model-dir"]] <= _STRENGTH[sources["model"]]:
        if not directory.exists():
            msg = f"model directory not found: {directory}; give --model-dir the directory or file of a model"
            raise ModelError(msg)
        return Path(os.path.abspath(directory))  # noqa: PTH100  # `resolve` would follow links and change the model's name
    return Path(os.path.abspath(resolve_model(core["model"], environ=environ, aliases=aliases)))  # noqa: PTH100  # as above


def served_name(path: Path, environ: Mapping[str, str]) -> str:
    """The id that a model is served under: the last component of its directory.

    A file in a directory of Lattice's cache has that directory's name, any other file its own without the ending. For a
    model of a hub (``ORG--NAME`` or ``ORG/NAME`` in a cache) it is ``ORG/NAME``.
    """
    snapshots = path if path.is_dir() else path.parent
    if snapshots.parent.name == "snapshots" and snapshots.parent.parent.name.startswith("models--"):
        return snapshots.parent.parent.name.removeprefix("models--").replace("--", "/", 1)
    cache = Path(os.path.abspath(model_cache(environ)))  # noqa: PTH100  # as in `model_path`
    directory = path if path.is_dir() else path.parent
    if cache in directory.parents:
        organisation = directory.parent.name if directory.parent.parent == cache else ""
        return f"{organisation}/{directory.name}" if organisation else directory.name.replace("--", "/", 1)
    return (path.name if path.is_dir() else path.stem) or "model"


class OtherTokenizer:
    """A checkpoint with the tokenizer of another directory; all else is passed through."""

    def __init__(self, checkpoint: Checkpoint, directory: Path) -> None:
        """Read ``tokenizer.json`` (and ``tokenizer_config.json``, where there is one). Raises ``ModelError``."""
        self._checkpoint = checkpoint
        file = directory if directory.is_file() else directory / "tokenizer.json"
        try:
            self._json = file.read_bytes()
        except OSError as error:
            msg = f"--tokenizer-dir: {file} cannot be read: {error.strerror}"
            raise ModelError(msg) from error
        settings = file.parent / "tokenizer_config.json"
        self._config: Mapping[str, Any] = checkpoint.tokenizer_config
        if settings.is_file():
            try:
                self._config = json.loads(settings.read_text(encoding="utf-8"))
            except (OSError, ValueError) as error:
                msg = f"--tokenizer-dir: {settings} cannot be read: {error}"
                raise ModelError(msg) from error

    @property
    def config(self) -> Mapping[str, Any]:
        """The checkpoint's."""
        return self._checkpoint.config

    @property
    def generation_config(self) -> Mapping[str, Any]:
        """The checkpoint's."""
        return self._checkpoint.generation_config

    @property
    def tokenizer_json(self) -> bytes:
        """The other directory's."""
        return self._json

    @property
    def tokenizer_config(self) -> Mapping[str, Any]:
        """The other directory's, or the checkpoint's where that has none."""
        return self._config

    @property
    def chat_template(self) -> str | None:
        """The checkpoint's."""
        return self._checkpoint.chat_template

    @property
    def format(self) -> str:
        """The checkpoint's."""
        return self._checkpoint.format

    @property
    def nbytes(self) -> int:
        """The checkpoint's."""
        return self._checkpoint.nbytes

    def tensors(self) -> Mapping[str, TensorSpec]:
        """The checkpoint's."""
        return self._checkpoint.tensors()

    def read(self, name: str) -> TensorData:
        """The checkpoint's."""
        return self._checkpoint.read(name)

    def close(self) -> None:
        """Close the checkpoint."""
        self._checkpoint.close()
