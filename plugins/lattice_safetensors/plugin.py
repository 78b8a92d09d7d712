"""What the safetensors plugin registers: the loader ``safetensors``. Imports nothing that reads files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lattice_core import hookimpl
from lattice_core.descriptors import LoaderSpec

if TYPE_CHECKING:
    from collections.abc import Iterable


@hookimpl
def lattice_loaders() -> Iterable[LoaderSpec]:
    """The loader of safetensors directories, and of adapters."""
    return (
        LoaderSpec(
            name="safetensors",
            summary="safetensors directories (single file or shards; F32, F16, BF16 and MLX-quantised) and LoRA adapters",
            factory="lattice_safetensors.loader:SafetensorsLoader",
            probe="lattice_safetensors.model_files:probe",
            adapter_probe="lattice_safetensors.adapter_files:probe",
            looks_for="model.safetensors or model.safetensors.index.json",
        ),
    )
