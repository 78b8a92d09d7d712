"""Where an adapter's scale comes from: its configuration, else the metadata of its file, else its rank.

Owns that order, and the rule for a file that stands alone. Must not know tensors.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from lattice_core.errors import ModelError
from lattice_safetensors.adapter_config import as_number, read_adapter_config
from lattice_safetensors.adapter_keys import PEFT
from lattice_safetensors.adapter_mlx_config import MlxScaling
from lattice_safetensors.adapter_peft_config import PeftScaling
from lattice_safetensors.header import shown

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_LOG = logging.getLogger("lattice.safetensors")
_ALPHA = ("alpha", "lora_alpha")


class Scaling(Protocol):
    """Says what a module's product of factors is multiplied by."""

    def scale(self, path: str, rank: int, tensor: str) -> float:
        """The scale of the module ``path``, whose factor ``tensor`` has ``rank``. Raises ``ModelError`` where they disagree."""
        ...


class MetadataScaling:
    """Scales of a file without a configuration: alpha / rank, with alpha from its metadata, or 1."""

    def __init__(self, metadata: Mapping[str, str], file: Path) -> None:
        found = {name: _alpha(metadata[name], name, file) for name in _ALPHA if name in metadata}
        if len(set(found.values())) > 1:
            both = " and ".join(f"{name} {value:g}" for name, value in found.items())
            raise ModelError(f"{file}: its metadata holds {both}; only one alpha can be meant")
        self._alpha = next(iter(found.values()), None)
        if self._alpha is None:
            _LOG.warning("%s: no adapter_config.json lies beside it and its metadata holds no alpha: its scale is 1", file)

    def scale(self, path: str, rank: int, tensor: str) -> float:
        """The file's alpha / rank; 1 without an alpha."""
        del path, tensor
        return 1.0 if self._alpha is None else self._alpha / rank


def read_scaling(config: Path) -> tuple[str, Scaling]:
    """Whose configuration it is (``PEFT`` or ``MLX``), and the scales that it gives. Raises ``ModelError``."""
    notation, fields = read_adapter_config(config)
    return notation, PeftScaling(fields) if notation == PEFT else MlxScaling(fields)


def _alpha(text: str, name: str, file: Path) -> float:
    try:
        number = as_number(float(text))
    except ValueError:
        number = None
    if number is None or number < 0:
        raise ModelError(f"{file}: {name} in its metadata is {shown(text)}, a finite number above 0 is expected")
    return number
