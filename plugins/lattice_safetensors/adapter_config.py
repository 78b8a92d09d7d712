"""``adapter_config.json``: read within bounds, whose it is, and typed access to its fields.

Owns the words of an error about a field. Must not know what a field means; see the modules of PEFT's and mlx-lm's fields.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from attrs import frozen

from lattice_core.errors import ModelError
from lattice_core.untrusted_files import read_object
from lattice_safetensors.adapter_keys import MLX, PEFT
from lattice_safetensors.header import shown

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

MAX_RANK = 4096
_MAX_BYTES = 8 << 20
_PEFT_FIELDS = frozenset(("peft_type", "lora_alpha"))
_MLX_FIELDS = frozenset(("fine_tune_type", "lora_parameters", "lora_layers"))
# Of normal float32 numbers, since that is what a scale is multiplied into.
_LEAST, _LARGEST = 2.0**-126, (2 - 2.0**-23) * 2.0**127


@frozen
class AdapterFields:
    """The object ``values`` at the place ``where`` (a file, or a file and a field). Null is the same as absent."""

    where: str
    values: Mapping[str, Any]

    def flag(self, name: str) -> bool:
        """A boolean; False where it is absent. Raises ``ModelError``."""
        found = self.values.get(name)
        if found is not None and not isinstance(found, bool):
            raise ModelError(f"{self.where}: {label(name)} is {shown(str(found))}, true or false is expected")
        return bool(found)

    def number(self, name: str) -> float | None:
        """A number for scales, finite in float32 and not 0. Raises ``ModelError``."""
        found = self.values.get(name)
        if found is None:
            return None
        number = as_number(found)
        if number is None:
            raise ModelError(f"{self.where}: {label(name)} is {shown(str(found))}, a finite number other than 0 is expected")
        return number

    def rank(self, name: str) -> int | None:
        """A rank: 1 to ``MAX_RANK``. Raises ``ModelError``."""
        found = self.values.get(name)
        if found is not None and not (type(found) is int and 1 <= found <= MAX_RANK):
            raise ModelError(f"{self.where}: {label(name)} is {shown(str(found))}, a rank of 1 to {MAX_RANK} is expected")
        return found

    def text(self, name: str) -> str | None:
        """A text. Raises ``ModelError``."""
        found = self.values.get(name)
        if found is not None and not isinstance(found, str):
            raise ModelError(f"{self.where}: {label(name)} is {shown(str(found))}, a text is expected")
        return found

    def fields(self, name: str) -> AdapterFields | None:
        """The fields of an object. Raises ``ModelError``."""
        found = self.values.get(name)
        if found is None:
            return None
        if not isinstance(found, dict):
            raise ModelError(f"{self.where}: {label(name)} is {shown(str(found))}, an object is expected")
        return AdapterFields(f"{self.where}: {name}", found)


def label(name: str) -> str:
    """A field's name for a message: as it is, or quoted and cut where it is no plain word."""
    return name if re.fullmatch(r"[A-Za-z0-9_]{1,60}", name) else shown(name)


def as_number(found: Any) -> float | None:
    """A JSON number that can be a scale: finite in float32 and not 0; None for anything else."""
    if isinstance(found, bool) or not isinstance(found, int | float):
        return None
    # Compared before it is converted: integers of JSON have any length. No comparison holds for NaN.
    return float(found) if _LEAST <= abs(found) <= _LARGEST else None


def read_adapter_config(path: Path) -> tuple[str, AdapterFields]:
    """Whose configuration it is (``PEFT`` or ``MLX``), and its fields. Raises ``ModelError``."""
    values = read_object(path, limit=_MAX_BYTES)
    if _PEFT_FIELDS & values.keys():
        return PEFT, AdapterFields(str(path), values)
    if _MLX_FIELDS & values.keys():
        return MLX, AdapterFields(str(path), values)
    raise ModelError(f"{path}: has neither peft_type (PEFT) nor lora_parameters (mlx-lm): it describes no adapter")
