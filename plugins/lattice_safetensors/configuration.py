"""``config.json`` and ``generation_config.json``: read within bounds, and asked for what no loader may do.

Owns the refusal of quantisation schemes that are not MLX's, and the notice that code named by a configuration is not run.
Must not know tensors.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from lattice_core.errors import ModelError
from lattice_core.untrusted_files import read_object
from lattice_safetensors.header import shown
from lattice_safetensors.model_files import CONFIG

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_LOG = logging.getLogger("lattice.safetensors")
_MAX_BYTES = 8 << 20
_CODE = ("auto_map", "model_file")
_MLX_FIELDS = ("bits", "group_size")
_WAY_OUT = "take the unquantised checkpoint, or one that MLX quantised"


def read_config(directory: Path) -> dict[str, Any]:
    """The configuration as it is stored. Raises ``ModelError``; also for a quantisation scheme other than MLX's affine one."""
    path = directory / CONFIG
    if not path.exists():
        raise ModelError(f"{directory}: {CONFIG} is missing; it belongs to the weights, get it too")
    config = read_object(path, limit=_MAX_BYTES)
    nested = config.get("text_config")
    for level in (config, nested if isinstance(nested, dict) else {}):
        for field in ("quantization_config", "compression_config"):
            _check_scheme(level.get(field), field, path)
    named = [field for field in _CODE if config.get(field)]
    if named:
        _LOG.warning("%s: asks for code of its own (%s), which is never run", path, ", ".join(named))
    return config


def quantization_of(config: Mapping[str, Any], path: Path) -> dict[str, Any] | None:
    """MLX's record of how weights were quantised, from the field that mlx-lm writes, or from its copy; None without one.

    Raises ``ModelError`` where it is no object.
    """
    nested = config.get("text_config")
    for level in (config, nested if isinstance(nested, dict) else {}):
        for field in ("quantization", "quantization_config"):
            found = level.get(field)
            if found is None or found == {}:
                continue
            if not isinstance(found, dict):
                raise ModelError(f"{path}: {field} is {shown(str(found))}, an object is expected")
            return found
    return None


def _check_scheme(found: Any, field: str, path: Path) -> None:
    """Refuse what was not written by MLX, which names no method and always says bits and group size."""
    if found is None or found == {}:
        return
    if not isinstance(found, dict):
        raise ModelError(f"{path}: {field} is {shown(str(found))}, an object is expected")
    method = found.get("quant_method") or found.get("quant_algo")
    if method is not None:
        raise ModelError(f"{path}: the weights are quantised by {shown(str(method))}, which is not read; {_WAY_OUT}")
    if not any(name in found for name in _MLX_FIELDS):
        names = ", ".join(sorted(found))
        raise ModelError(f"{path}: {field} describes an unknown scheme ({names[:200]}), which is not read; {_WAY_OUT}")
