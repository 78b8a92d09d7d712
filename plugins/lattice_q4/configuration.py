"""``config.json`` and its companions: read within bounds, and what a KHQ4 directory's says of its output head.

Must not know tensor files.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from lattice_core.errors import ModelError
from lattice_core.untrusted_files import is_there, read_object, shown_value
from lattice_q4.model_files import CONFIG

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

_LOG = logging.getLogger("lattice.q4")
_MAX_BYTES = 8 << 20
_CODE = ("auto_map", "model_file")
_TIED = "tie_word_embeddings"
_HEAD = "lm_head.weight"


def read_config(directory: Path) -> dict[str, Any]:
    """The configuration as it is stored. Raises ``ModelError``; also where there is none."""
    path = directory / CONFIG
    if not is_there(path):
        raise ModelError(f"{directory}: {CONFIG} is missing; copy that of the model that was quantised")
    config = read_object(path, limit=_MAX_BYTES)
    named = [field for field in _CODE if config.get(field)]
    if named:
        _LOG.warning("%s: asks for code of its own (%s), which is never run", path, ", ".join(named))
    return config


def check_head(config: Mapping[str, Any], tensors: Iterable[str], directory: Path) -> None:
    """Hold the contract of KHQ4 directories: an output head exactly where the embedding does not serve as one.

    The flag at the top level wins over the one in ``text_config``; without either, embeddings are untied. Raises
    ``ModelError``.
    """
    path = directory / CONFIG
    tied = _flag(config, path)
    heads = [name for name in tensors if name == _HEAD or name.endswith(f".{_HEAD}")]
    if tied and heads:
        cause = f"{_TIED} is true, but the directory holds {shown_value(heads[0])}"
        raise ModelError(f"{path}: {cause}; remove that file, or set {_TIED} to false if the model has a head of its own")
    if not tied and not heads:
        says = "is not there, which means false" if tied is None else "is false"
        cause = f"{_TIED} {says}, but the directory holds no {_HEAD}"
        raise ModelError(f"{path}: {cause}; get lm_head_weight.q4 too, or set {_TIED} to true if the embedding is the head")


def _flag(config: Mapping[str, Any], path: Path) -> bool | None:
    nested = config.get("text_config")
    for level in (config, nested if isinstance(nested, dict) else {}):
        found = level.get(_TIED)
        if found is None:
            continue
        if not isinstance(found, bool):
            raise ModelError(f"{path}: {_TIED} is {shown_value(found)}; true or false is expected")
        return found
    return None
