"""What the GGUF plugin registers: the loader ``gguf``. Imports nothing that reads files or needs numpy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lattice_core import hookimpl
from lattice_core.descriptors import LoaderSpec

if TYPE_CHECKING:
    from collections.abc import Iterable


@hookimpl
def lattice_loaders() -> Iterable[LoaderSpec]:
    """The loader of GGUF files."""
    return (
        LoaderSpec(
            name="gguf",
            summary="GGUF files (llama.cpp), quantised tensors kept packed where that loses nothing",
            factory="lattice_gguf.loader:GgufLoader",
            requires=("numpy",),
            install="pip install numpy",
            probe="lattice_gguf.model_files:probe",
            looks_for="*.gguf",
        ),
    )
