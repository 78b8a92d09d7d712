"""What the MLX plugin registers: the backend ``mlx``. Imports neither MLX nor numpy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lattice_core import hookimpl
from lattice_core.descriptors import BackendSpec, Option

if TYPE_CHECKING:
    from collections.abc import Iterable


@hookimpl
def lattice_backends() -> Iterable[BackendSpec]:
    """The backend that runs tensors with MLX."""
    return (
        BackendSpec(
            name="mlx",
            summary="MLX: Apple GPUs, NVIDIA GPUs and CPUs",
            factory="lattice_mlx.backend:MlxBackend",
            requires=("mlx", "numpy"),
            install="pip install 'lattice-engine[cpu]' (NVIDIA: [cuda12] or [cuda13]; macOS needs no extra)",
            options=(
                Option(
                    name="device",
                    help="where to compute; auto takes the GPU when MLX has one",
                    default="auto",
                    choices=("auto", "cpu", "gpu"),
                ),
                Option(
                    name="blas",
                    help="library with cblas_sgemm to put under MLX on a Linux CPU, or off (default: a fast one when found)",
                    metavar="PATH",
                    env_aliases=("LATTICE_BLAS",),
                ),
                Option(
                    name="dequantize",
                    help="expand quantised weights at load; auto does it on the CPU when they fit into free memory",
                    default="auto",
                    choices=("auto", "always", "never"),
                ),
            ),
        ),
    )
