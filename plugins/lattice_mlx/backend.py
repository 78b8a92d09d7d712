"""The backend ``mlx``: from a checkpoint to a model on a device. Implements ``protocols.Backend``.

Owns the order of things: the BLAS first, MLX after it, then device, dtype, checks of the checkpoint, weights. Imports of MLX
stand inside functions for that reason.
"""

from __future__ import annotations

import logging
from importlib.metadata import version
from typing import TYPE_CHECKING

from attrs import frozen

from lattice_core.errors import LatticeError, ModelError
from lattice_core.types import ModelDescription, ModelInfo
from lattice_mlx.architectures import find_architecture
from lattice_mlx.blas import load_fast_blas
from lattice_mlx.free_memory import free_bytes
from lattice_mlx.language_config import language_config
from lattice_mlx.stop_tokens import eos_ids
from lattice_mlx.stored_tensors import account, check_tensors, check_tied, loaded_bytes, unreadable
from lattice_mlx.tensor_names import language_tensors

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lattice_core.descriptors import Settings
    from lattice_core.protocols import Checkpoint
    from lattice_core.types import Limits, TensorSpec
    from lattice_mlx.architectures import Found
    from lattice_mlx.kv_cache import CacheGeometry
    from lattice_mlx.model import MlxModel
    from lattice_mlx.network import Blueprint
    from lattice_mlx.target import Target
    from lattice_mlx.tensor_names import LanguageTensors

logger = logging.getLogger("lattice.mlx")

_ROTATION = "quarot_rotation_seed"
"""The field of a configuration that says that the residual stream is rotated."""

_SHARE_OF_FREE = 0.6
"""Part of free memory that weights may take when they are expanded without being asked to."""


class MlxBackend:
    """Made on the device thread. Options: ``device``, ``blas``, ``dequantize`` (see the plugin's descriptor).

    Raises ``UsageError`` for a device or a BLAS that is not there.
    """

    def __init__(self, settings: Settings) -> None:
        self._options = settings.own
        self._architectures = settings.architectures
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

    def describe(self, checkpoint: Checkpoint, limits: Limits) -> ModelDescription:
        """Sizes and the accounting of tensors, from names and shapes alone; raises ``ModelError``."""
        plan = self._plan(checkpoint, limits)
        specs = plan.tensors.specs
        found = account(specs, plan.blueprint.tensors(), plan.blueprint.ignores)
        used = [specs[name] for name in plan.blueprint.tensors() if name in specs]
        expand, _ = self._quantized_weights(used, plan.target)
        geometry = plan.geometry
        return ModelDescription(
            architecture=plan.found.title,
            vocab_size=plan.blueprint.vocab_size,
            context=geometry.context,
            dtype=plan.target.dtype_name,
            weight_bytes=loaded_bytes(used, plan.target.dtype.size, expand=expand),
            state_bytes_fixed=_fixed_bytes(geometry),
            state_bytes_per_token=_bytes_per_token(geometry),
            missing=found.missing,
            unexpected=found.surplus,
            misshapen=(*found.wrong, *unreadable(used)),
            skipped=plan.tensors.skipped,
        )

    def _plan(self, checkpoint: Checkpoint, limits: Limits) -> _Plan:
        """Everything that is decided before weights are read."""
        from lattice_mlx.target import choose_target  # noqa: PLC0415  imports MLX, as below

        config = language_config(checkpoint.config)
        tensors = language_tensors(checkpoint.tensors())
        found = find_architecture(config, self._architectures, self._options.get("architecture"))
        blueprint = found.read(config).fit(tensors.specs)
        target = choose_target(self._device, limits.dtype, checkpoint)
        return _Plan(found, blueprint, tensors, target, blueprint.cache(target.dtype, _context(blueprint, limits)))

    def _load(self, checkpoint: Checkpoint, limits: Limits, progress: Callable[[int, int], None]) -> MlxModel:
        from lattice_mlx.adapters import AdapterBank  # noqa: PLC0415  imports MLX, as below
        from lattice_mlx.model import MlxModel  # noqa: PLC0415
        from lattice_mlx.weights import WeightReader  # noqa: PLC0415

        plan = self._plan(checkpoint, limits)
        blueprint, target, geometry, specs = plan.blueprint, plan.target, plan.geometry, plan.tensors.specs
        ends = eos_ids(checkpoint, blueprint.vocab_size)
        check_tensors(specs, blueprint.tensors(), blueprint.ignores)
        check_tied(checkpoint, plan.tensors, blueprint)
        expand, treatment = self._quantized_weights([specs[name] for name in blueprint.tensors()], target)
        device = f"MLX {version('mlx')} on {'CPU' if target.on_cpu else 'GPU'} ({target.device_name}), {target.dtype_name}"
        logger.info("%s%s%s", device, f", {self._blas.line}" if target.on_cpu else "", treatment)
        if plan.tensors.skipped:
            logger.info(
                "%d tensors of other towers are left out, such as %s", len(plan.tensors.skipped), plan.tensors.skipped[0]
            )
        reader = WeightReader(checkpoint, plan.tensors, target, expand=expand, progress=progress)
        network = blueprint.build(reader, target)
        info = ModelInfo(
            architecture=plan.found.title,
            vocab_size=blueprint.vocab_size,
            context=geometry.context,
            eos_ids=ends,
            device=device,
            dtype=target.dtype_name,
            nbytes=reader.nbytes,
            state_bytes_per_token=_bytes_per_token(geometry),
            state_bytes_fixed=_fixed_bytes(geometry),
            fingerprint=reader.fingerprint(),
            lookahead=not target.on_cpu,
        )
        rotated = checkpoint.config.get(_ROTATION) is not None
        bank = AdapterBank(reader.projections, target.dtype, blueprint.refused_adapters, rotated=rotated)
        return MlxModel(network, info, geometry, bank)

    def _quantized_weights(self, specs: Sequence[TensorSpec], target: Target) -> tuple[bool, str]:
        """Whether packed weights become dense, and that in words for the log.

        On the CPU dense float32 is several times faster and batches; packed weights are right there in float32 only.
        """
        if not any(spec.quantization for spec in specs):
            return False, ""
        choice = str(self._options.get("dequantize") or "auto")
        packed_is_wrong = target.on_cpu and target.dtype_name != "float32"
        if choice == "never" and packed_is_wrong:
            raise ModelError(
                f"--mlx-dequantize never: MLX multiplies packed weights on the CPU too inexactly in {target.dtype_name};"
                " use --dtype float32 or --mlx-dequantize auto"
            )
        needed, free = loaded_bytes(specs, target.dtype.size, expand=True), free_bytes()
        fits = free is None or needed <= _SHARE_OF_FREE * free
        if choice == "always" or packed_is_wrong or (choice == "auto" and target.on_cpu and fits):
            return True, f"; quantised weights expanded to {needed / 1e6:.0f} MB"
        if choice == "auto" and target.on_cpu and free is not None:
            return False, (
                f"; quantised weights kept packed, which is slower: expanded they take {needed / 1e6:.0f} MB of"
                f" {free / 1e6:.0f} MB free (--mlx-dequantize always expands them)"
            )
        return False, "; quantised weights kept packed"


@frozen(eq=False)
class _Plan:
    """What is decided of a model before its weights are read."""

    found: Found
    blueprint: Blueprint
    tensors: LanguageTensors
    target: Target
    geometry: CacheGeometry


def _bytes_per_token(geometry: CacheGeometry) -> int:
    """Capacities are powers of two: a state takes between one and two times its tokens."""
    return geometry.bytes_per_token * 3 // 2


def _fixed_bytes(geometry: CacheGeometry) -> int:
    return geometry.bytes_per_token * geometry.capacity(1) + geometry.bytes_fixed


def _context(blueprint: Blueprint, limits: Limits) -> int:
    if limits.context is None:
        return blueprint.context
    if not 1 <= limits.context <= blueprint.context:
        raise ModelError(
            f"--context {limits.context}: this model was made for 1 to {blueprint.context} tokens (max_position_embeddings)"
        )
    return limits.context
