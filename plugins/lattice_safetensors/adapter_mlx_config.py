"""mlx-lm's ``adapter_config.json``: the one scale of all modules, and what is refused because it is not plain LoRA.

Owns the meaning of mlx-lm's fields (``mlx_lm.tuner``, version 0.32). ``scale`` stands as it is: y + scale * (x A) B.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from lattice_core.errors import ModelError
from lattice_safetensors.header import shown

if TYPE_CHECKING:
    from lattice_safetensors.adapter_config import AdapterFields

_LOG = logging.getLogger("lattice.safetensors")
_FUSE = "fuse the adapter into its base"


class MlxScaling:
    """The scale of an mlx-lm configuration. Raises ``ModelError`` naming the field that is wrong or not supported."""

    def __init__(self, config: AdapterFields) -> None:
        kind = config.text("fine_tune_type") or "lora"
        if kind == "full":
            raise ModelError(f"{config.where}: fine_tune_type is 'full': these are whole weights, no adapter; fuse them first")
        if kind != "lora" or config.flag("use_dora"):
            what = "use_dora is true" if kind == "lora" else f"fine_tune_type is {shown(kind)}"
            raise ModelError(f"{config.where}: {what}: only lora is supported; {_FUSE}")
        parameters = config.fields("lora_parameters")
        if parameters is None:
            raise ModelError(f"{config.where}: lora_parameters is missing; it holds the adapter's scale, get the whole file")
        scale = parameters.number("scale")
        alpha = parameters.number("alpha")
        if scale is None:
            hint = "; mlx-lm does not read alpha" if alpha is not None else ""
            raise ModelError(f"{parameters.where}: scale is missing{hint}; add the scale that the adapter was trained with")
        self._where, self._scale, self._rank = parameters.where, scale, parameters.rank("rank")
        if alpha is not None and alpha != self._rank:
            _LOG.warning("%s: scale %g is used as it is, alpha %g is not, as in mlx-lm", parameters.where, scale, alpha)

    def scale(self, path: str, rank: int, tensor: str) -> float:
        """The same for every module. Raises ``ModelError`` where ``rank``, that of ``tensor``, is not the configuration's."""
        if self._rank is not None and rank != self._rank:
            raise ModelError(f"{self._where}: gives {shown(path)} the rank {self._rank}, its tensor {shown(tensor)} has {rank}")
        return self._scale
