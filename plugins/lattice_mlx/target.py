"""Where a model computes and in which dtype. Owns that choice; knows no architecture and no checkpoint format.

On the CPU everything is float32 unless another dtype is asked for: MLX multiplies float16 and bfloat16 there without a BLAS.
On a GPU activations keep the checkpoint's dtype.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import mlx.core as mx
from attrs import frozen

from lattice_core.errors import ModelError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from lattice_core.protocols import Checkpoint

DTYPE_NAMES = ("float32", "bfloat16", "float16")
_STORED = {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}


@frozen
class Target:
    """The device (``cpu`` or ``gpu``) and the name of the dtype of weights, activations and KV cache."""

    device: str
    dtype_name: str

    @property
    def dtype(self) -> mx.Dtype:
        """The dtype itself."""
        dtype: mx.Dtype = getattr(mx, self.dtype_name)
        return dtype

    @property
    def on_cpu(self) -> bool:
        """Whether the CPU computes."""
        return self.device == "cpu"

    @property
    def device_name(self) -> str:
        """The device as MLX names it."""
        info = mx.device_info(mx.Device(mx.cpu if self.on_cpu else mx.gpu))
        return str(info.get("device_name") or info.get("architecture") or self.device)


def choose_device(choice: str) -> str:
    """``cpu`` or ``gpu`` for ``auto``, ``cpu`` or ``gpu``; makes it the default device of MLX.

    Raises ``UsageError`` if a GPU is asked for and MLX has none.
    """
    has_gpu = mx.is_available(mx.Device(mx.gpu))
    if choice == "gpu" and not has_gpu:
        raise UsageError(
            "--mlx-device gpu: this build of MLX has no GPU; use cpu, or install MLX for CUDA with"
            " pip install 'lattice-engine[cuda13]'",
            param="mlx-device",
        )
    device = "gpu" if has_gpu and choice != "cpu" else "cpu"
    mx.set_default_device(mx.Device(mx.gpu if device == "gpu" else mx.cpu))
    return device


def choose_target(device: str, requested: str | None, checkpoint: Checkpoint) -> Target:
    """The dtype that was asked for, else float32 on the CPU and the checkpoint's own on a GPU.

    Raises ``ModelError`` for a dtype of another name.
    """
    if requested is None:
        return Target(device, "float32" if device == "cpu" else checkpoint_dtype(checkpoint))
    if requested not in DTYPE_NAMES:
        raise ModelError(f"--dtype {requested}: the mlx backend computes in {', '.join(DTYPE_NAMES)}")
    return Target(device, requested)


def checkpoint_dtype(checkpoint: Checkpoint) -> str:
    """The dtype that a checkpoint was made for: what its configuration says, else how its largest tensor is stored."""
    config: Mapping[str, Any] = checkpoint.config
    for key in ("dtype", "torch_dtype"):
        if config.get(key) in DTYPE_NAMES:
            return str(config[key])
    largest = max(checkpoint.tensors().values(), key=lambda spec: prod(spec.shape), default=None)
    if largest is None:
        return "float32"
    stored = largest.quantization.scale_dtype if largest.quantization else largest.dtype
    return _STORED.get(stored, "float32")
