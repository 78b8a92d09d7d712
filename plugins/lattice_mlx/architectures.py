"""The architectures that this backend runs, by the names that configurations use. One file each; this is their list."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from lattice_core.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lattice_mlx.network import Architecture

ARCHITECTURES = {"LlamaForCausalLM": "lattice_mlx.llama:LlamaBlueprint.read"}
"""``architectures[0]`` of a configuration, and what reads it."""

MODEL_TYPES = {"llama": "LlamaForCausalLM"}
"""``model_type``, for configurations that name no architecture."""


def find_architecture(config: Mapping[str, Any]) -> tuple[str, Architecture]:
    """The name of a configuration's architecture and what reads it; ``ModelError`` lists the supported ones."""
    listed = config.get("architectures")
    name = listed[0] if isinstance(listed, list | tuple) and listed else MODEL_TYPES.get(str(config.get("model_type")))
    target = ARCHITECTURES.get(str(name))
    if name is None or target is None:
        raise ModelError(
            f"architecture {name or config.get('model_type')!r} is not one that the mlx backend runs:"
            f" {', '.join(sorted(ARCHITECTURES))}"
        )
    module, _, path = target.partition(":")
    found: Any = import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    return str(name), cast("Architecture", found)
