"""The backend ``mlx``: from a checkpoint to a model on a device. Implements ``protocols.Backend``.

Owns the order of things: the BLAS first, MLX after it, then device, dtype, checks of the checkpoint, weights. Imports of MLX
stand inside functions for that reason.
"""

from __future__ import annotations

import logging
from importlib.metadata import version
from typing import TYPE_CHECKING

from lattice_core.errors import LatticeError, ModelError
from lattice_core.types import ModelInfo
from lattice_mlx.architectures import find_architecture
from lattice_mlx.blas import load_fast_blas
from lattice_mlx.free_memory import free_bytes
from lattice_mlx.stop_tokens import eos_ids

if TYPE_CHECKING:
    from collections.abc import Callable

    from lattice_core.descriptors import Settings
    from lattice_core.protocols import Checkpoint
    from lattice_core.types import Limits
    from lattice_mlx.model import MlxModel
    from lattice_mlx.network import Blueprint
    from lattice_mlx.target import Target

logger = logging.getLogger("lattice.mlx")

_SHARE_OF_FREE = 0.6
"""Part of free memory that weights may take when they are expanded without being asked to."""


class MlxBackend:
    """Made on the device thread. Options: ``device``, ``blas``, ``dequantize`` (see the plugin's descriptor).

    Raises ``UsageError`` for a device or a BLAS that is not there.
    """

    def __init__(self, settings: Settings) -> None:
        self._options = settings.own
        self._blas = load_fast_blas(settings.own.get("blas"))
        from lattice_mlx.target import choose_device  # noqa: PLC0415  MLX may be imported only after the BLAS

        self._device = choose_device(str(settings.own.get("device") or "auto"))

    def load(self, checkpoint: Checkpoint, limits: Limits, progress: Callable[[int, int], None]) -> MlxModel:
        """Load all weights on the calling thread; raises ``ModelError``."""
        try:
            return self._load(checkpoint, limits, progress)
        except LatticeError:
            raise
        except (RuntimeError, MemoryError) as error:
            raise ModelError(f"MLX could not load the model: {error}") from error

    def _load(self, checkpoint: Checkpoint, limits: Limits, progress: Callable[[int, int], None]) -> MlxModel:
        from lattice_mlx.kv_cache import CacheGeometry  # noqa: PLC0415  imports MLX, as below
        from lattice_mlx.model import MlxModel  # noqa: PLC0415
        from lattice_mlx.target import choose_target  # noqa: PLC0415
        from lattice_mlx.weights import WeightReader, check_tensors  # noqa: PLC0415

        name, architecture = find_architecture(checkpoint.config)
        blueprint = architecture(checkpoint.config)
        context = _context(blueprint, limits)
        ends = eos_ids(checkpoint, blueprint.vocab_size)
        check_tensors(checkpoint.tensors(), blueprint.tensors(), blueprint.ignores)
        target = choose_target(self._device, limits.dtype, checkpoint)
        expand, treatment = self._quantized_weights(checkpoint, blueprint, target)
        device = f"MLX {version('mlx')} on {'CPU' if target.on_cpu else 'GPU'} ({target.device_name}), {target.dtype_name}"
        logger.info("%s%s%s", device, f", {self._blas.line}" if target.on_cpu else "", treatment)
        reader = WeightReader(checkpoint, target, expand=expand, progress=progress)
        network = blueprint.build(reader, target)
        heads = blueprint.geometry
        geometry = CacheGeometry(blueprint.layers, 2 * heads.kv_heads, heads.head_dim, target.dtype, context)
        info = ModelInfo(
            architecture=name,
            vocab_size=blueprint.vocab_size,
            context=context,
            eos_ids=ends,
            device=device,
            dtype=target.dtype_name,
            nbytes=reader.nbytes,
            # Capacities are powers of two: a state takes between one and two times its tokens.
            state_bytes_per_token=geometry.bytes_per_token * 3 // 2,
            state_bytes_fixed=geometry.bytes_per_token * geometry.capacity(1),
            fingerprint=reader.fingerprint(),
            lookahead=not target.on_cpu,
        )
        return MlxModel(network, info, geometry)

    def _quantized_weights(self, checkpoint: Checkpoint, blueprint: Blueprint, target: Target) -> tuple[bool, str]:
        """Whether packed weights become dense, and that in words for the log.

        On the CPU dense float32 is several times faster and batches; packed weights are right there in float32 only.
        """
        from lattice_mlx.weights import expanded_bytes  # noqa: PLC0415  imports MLX

        specs = [checkpoint.tensors()[name] for name in blueprint.tensors()]
        if not any(spec.quantization for spec in specs):
            return False, ""
        choice = str(self._options.get("dequantize") or "auto")
        packed_is_wrong = target.on_cpu and target.dtype_name != "float32"
        if choice == "never" and packed_is_wrong:
            raise ModelError(
                f"--mlx-dequantize never: MLX multiplies packed weights on the CPU too inexactly in {target.dtype_name};"
                " use --dtype float32 or --mlx-dequantize auto"
            )
        needed, free = expanded_bytes(specs, target.dtype.size), free_bytes()
        fits = free is None or needed <= _SHARE_OF_FREE * free
        if choice == "always" or packed_is_wrong or (choice == "auto" and target.on_cpu and fits):
            return True, f"; quantised weights expanded to {needed / 1e6:.0f} MB"
        if choice == "auto" and target.on_cpu and free is not None:
            return False, (
                f"; quantised weights kept packed, which is slower: expanded they take {needed / 1e6:.0f} MB of"
                f" {free / 1e6:.0f} MB free (--mlx-dequantize always expands them)"
            )
        return False, "; quantised weights kept packed"


def _context(blueprint: Blueprint, limits: Limits) -> int:
    if limits.context is None:
        return blueprint.context
    if not 1 <= limits.context <= blueprint.context:
        raise ModelError(
            f"--context {limits.context}: this model was made for 1 to {blueprint.context} tokens (max_position_embeddings)"
        )
    return limits.context
