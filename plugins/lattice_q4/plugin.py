"""What the q4 plugin registers: the loader ``q4`` and the command ``quantize``. Imports neither numpy nor MLX."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lattice_core import hookimpl
from lattice_core.descriptors import CommandSpec, LoaderSpec

if TYPE_CHECKING:
    from collections.abc import Iterable


@hookimpl
def lattice_loaders() -> Iterable[LoaderSpec]:
    """The loader of KHQ4 directories."""
    return (
        LoaderSpec(
            name="q4",
            summary="KHQ4 version 2 directories (*.q4 and *.f16), packed weights kept packed",
            factory="lattice_q4.loader:Q4Loader",
            requires=("numpy",),
            install="pip install numpy",
            probe="lattice_q4.model_files:probe",
            looks_for="*.q4",
        ),
    )


@hookimpl
def lattice_commands() -> Iterable[CommandSpec]:
    """The command that writes quantised models."""
    return (
        CommandSpec(
            name="quantize",
            summary="write a quantised copy of a model: KHQ4 (q4) or MLX's affine format (mlx)",
            factory="lattice_q4.quantize_command:quantize",
            arguments="lattice_q4.quantize_command:arguments",
            requires=("numpy",),
            install="pip install numpy",
        ),
    )
