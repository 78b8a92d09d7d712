"""What the MLX plugin registers: the backend ``mlx`` and its architectures. Imports neither MLX nor numpy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lattice_core import hookimpl
from lattice_core.descriptors import ArchitectureSpec, BackendSpec, Option

if TYPE_CHECKING:
    from collections.abc import Iterable


def _architecture(name: str, summary: str, factory: str, classes: tuple[str, ...], types: tuple[str, ...]) -> ArchitectureSpec:
    return ArchitectureSpec(
        name=name,
        summary=summary,
        factory=f"lattice_mlx.{factory}",
        backend="mlx",
        classes=classes,
        model_types=types,
        requires=("mlx", "numpy"),
    )


ARCHITECTURES = (
    _architecture("llama", "Llama 2 and 3, SmolLM2", "llama:read_llama", ("LlamaForCausalLM",), ("llama",)),
    _architecture("qwen2", "Qwen2, Qwen2.5", "qwen2:read_qwen2", ("Qwen2ForCausalLM",), ("qwen2",)),
    _architecture("qwen3", "Qwen3", "qwen3:read_qwen3", ("Qwen3ForCausalLM",), ("qwen3",)),
    _architecture("qwen3-moe", "Qwen3 with experts", "qwen3:read_qwen3_moe", ("Qwen3MoeForCausalLM",), ("qwen3_moe",)),
    _architecture(
        "qwen3-5",
        "Qwen3.5: Gated DeltaNet and gated attention",
        "qwen3_5:read_qwen3_5",
        ("Qwen3_5ForCausalLM", "Qwen3_5ForConditionalGeneration"),
        ("qwen3_5", "qwen3_5_text"),
    ),
    _architecture(
        "qwen3-5-moe",
        "Qwen3.5 with experts",
        "qwen3_5:read_qwen3_5_moe",
        ("Qwen3_5MoeForCausalLM", "Qwen3_5MoeForConditionalGeneration"),
        ("qwen3_5_moe", "qwen3_5_moe_text"),
    ),
)


@hookimpl
def lattice_architectures() -> Iterable[ArchitectureSpec]:
    """The architectures that the backend runs out of the box."""
    return ARCHITECTURES


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
                Option(
                    name="architecture",
                    help="run the model as this architecture; default: what its configuration names",
                    metavar="NAME",
                ),
            ),
        ),
    )
