"""Brings the tensors of a checkpoint onto the device: converted, expanded or kept packed, fused, evaluated.

Owns the conversion of stored bytes, and the count of bytes held. Everything is evaluated
piece by piece, so that memory stays bounded by what is held and one piece. Knows no architecture.
"""

from __future__ import annotations

import json
from hashlib import blake2b
from math import prod
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np

from lattice_core.errors import ModelError
from lattice_mlx.embedding import Embedding
from lattice_mlx.linear import fused_linear
from lattice_mlx.matrix import DenseMatrix, QuantizedMatrix, matrix_arrays, stacked
from lattice_mlx.norm import RMSNorm
from lattice_mlx.projection import Module, Projection

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lattice_core.protocols import Checkpoint
    from lattice_core.types import AffineQuantization, TensorData, TensorSpec
    from lattice_mlx.linear import Linear
    from lattice_mlx.matrix import Matrix
    from lattice_mlx.target import Target
    from lattice_mlx.tensor_names import LanguageTensors

_NUMPY: dict[str, np.dtype[Any]] = {
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype("<u2"),
    "U32": np.dtype("<u4"),
}
_SAMPLED_BYTES = 4096


class WeightReader:
    """Reads one checkpoint for one target. ``expand`` says that quantised matrices become dense.

    ``progress(done, total)`` is called with bytes as stored. All methods raise ``ModelError`` for a tensor whose bytes do
    not fit its description. ``nbytes`` counts the arrays that were handed out.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        tensors: LanguageTensors,
        target: Target,
        *,
        expand: bool,
        progress: Callable[[int, int], None],
    ) -> None:
        self._checkpoint = checkpoint
        self._tensors = tensors
        self.target = target
        self._expand = expand
        self._progress = progress
        self._done = 0
        self._digest = blake2b(json.dumps(dict(checkpoint.config), sort_keys=True, default=str).encode(), digest_size=16)
        self.nbytes = 0
        self.projections: list[Projection] = []

    @property
    def specs(self) -> Mapping[str, TensorSpec]:
        """The tensors of the language model by canonical name."""
        return self._tensors.specs

    def vector(self, name: str) -> mx.array:
        """A tensor of few elements, of any shape, in the target's dtype."""
        return self._settle([self._small(name).astype(self.target.dtype)])[0]

    def exact(self, name: str) -> mx.array:
        """A tensor of few elements, of any shape, in float32."""
        return self._settle([self._small(name)])[0]

    def norm(self, name: str, eps: float, *, zero_centred: bool = False) -> RMSNorm:
        """A normalisation; ``zero_centred`` says that 1 is to be added to the stored weights, which happens in float32."""
        weight = self._small(name)
        if zero_centred:
            return RMSNorm(self._settle([weight + 1.0])[0], eps, self.target.dtype)
        kept = weight.astype(self.target.dtype)
        # Rounding what a checkpoint stores more exactly than the target computes would lose bits for nothing.
        exact = self.specs[name].dtype == "F32"
        return RMSNorm(self._settle([weight if exact else kept])[0], eps, self.target.dtype)

    def embedding(self, name: str) -> Embedding:
        """The table [vocabulary, hidden]."""
        embedding = Embedding(self._matrix(name))
        self._settle(embedding.arrays())
        return embedding

    def linear(self, names: Sequence[str], biases: Sequence[str] = ()) -> Linear:
        """One layer of all the matrices ``names`` that share an input, with their ``biases`` or none."""
        vectors = [self._small(name).astype(self.target.dtype) for name in biases]
        column_major = self.target.on_cpu and self._dense_is_float32
        layer = fused_linear([self._matrix(name) for name in names], vectors, column_major=column_major)
        self._settle(layer.arrays())
        return layer

    def router(self, name: str) -> mx.array:
        """The matrix of a router, float32 [width, experts]: rounded scores would send tokens elsewhere."""
        data = self._read(name)
        scheme = data.spec.quantization
        if scheme is None:
            values = self._stored(data.data, data.spec.dtype, data.spec.shape, name).astype(mx.float32)
        else:
            values = self._packed(data, scheme, name, mx.float32).expanded().values
        return self._settle([mx.contiguous(values.T)])[0]

    def projection(self, prefix: str, modules: Sequence[str], *, bias: bool = False) -> Projection:
        """The linear modules ``prefix + module`` of one input as one projection, which adapters may change."""
        names = [f"{prefix}{module}" for module in modules]
        layer = self.linear([f"{name}.weight" for name in names], [f"{name}.bias" for name in names] if bias else [])
        placed, start = [], 0
        for name in names:
            width = self.specs[f"{name}.weight"].shape[0]
            placed.append(Module(name.removeprefix("model."), start, width))
            start += width
        projection = Projection(layer, tuple(placed), self.specs[f"{names[0]}.weight"].shape[1])
        self.projections.append(projection)
        return projection

    def matrices(self, names: Sequence[Sequence[str]]) -> Matrix:
        """Matrices of experts [experts, out, in], one block of output rows for each of ``names``.

        A block names one stored stack, or the matrices of all experts in turn.
        """
        rows = [self._stack(row) for row in names]
        whole = stacked(rows, axis=1)
        if whole is None:
            raise ModelError(f"{names[0][0]} and {names[-1][0]} are quantised in different ways, which no product can mix")
        self._settle(matrix_arrays(whole))
        return whole

    def fingerprint(self) -> str:
        """A digest of the configuration and of the names, shapes and first bytes of all tensors read so far."""
        return self._digest.hexdigest()

    # ------------------------------------------------------------------------------------ one tensor

    @property
    def _dense_is_float32(self) -> bool:
        return self.target.dtype_name == "float32"

    def _read(self, name: str) -> TensorData:
        data = self._checkpoint.read(self._tensors.stored[name])
        self._digest.update(f"{name}{data.spec.dtype}{data.spec.shape}{data.spec.quantization}".encode())
        self._digest.update(data.data[:_SAMPLED_BYTES])
        self._done += sum(part.nbytes for part in (data.data, data.scales, data.biases) if part is not None)
        return data

    def _matrix(self, name: str) -> Matrix:
        data = self._read(name)
        scheme = data.spec.quantization
        if scheme is None:
            return DenseMatrix(self._stored(data.data, data.spec.dtype, data.spec.shape, name).astype(self.target.dtype))
        if self._expand:
            # Expanded in float32 and rounded once.
            return DenseMatrix(self._packed(data, scheme, name, mx.float32).expanded().values.astype(self.target.dtype))
        return self._packed(data, scheme, name, self.target.dtype)

    def _packed(self, data: TensorData, scheme: AffineQuantization, name: str, dtype: mx.Dtype) -> QuantizedMatrix:
        if data.scales is None or data.biases is None:
            raise ModelError(f"tensor {name} is quantised and has no scales or biases")
        *outer, width = data.spec.shape
        groups = (*outer, width // scheme.group_size)
        words = mx.array(_numbers(data.data, "U32", (*outer, width * scheme.bits // 32), name))
        scales = self._finite(self._stored(data.scales, scheme.scale_dtype, groups, f"{name} (scales)"), name)
        biases = self._finite(self._stored(data.biases, scheme.scale_dtype, groups, f"{name} (biases)"), name)
        return QuantizedMatrix(words, scales.astype(dtype), biases.astype(dtype), scheme.group_size, scheme.bits)

    def _stack(self, names: Sequence[str]) -> Matrix:
        """One stored stack [experts, out, in], or one from matrices of single experts."""
        if len(names) == 1:
            return self._matrix(names[0])
        parts = [self._matrix(name) for name in names]
        whole = stacked([part.as_stack() for part in parts])
        if whole is None:
            raise ModelError(f"{names[0]} and its siblings are quantised in different ways, which no product can mix")
        mx.eval(matrix_arrays(whole))
        return whole

    def _small(self, name: str) -> mx.array:
        """Any plain tensor in float32; its numbers must be finite."""
        data = self._read(name)
        if data.spec.quantization is not None:
            raise ModelError(f"tensor {name} is quantised, which is not possible for this one")
        return self._finite(self._stored(data.data, data.spec.dtype, data.spec.shape, name).astype(mx.float32), name)

    def _finite(self, numbers: mx.array, name: str) -> mx.array:
        if not mx.all(mx.isfinite(numbers)).item():
            raise ModelError(f"tensor {self._tensors.stored[name]} holds numbers that are not finite: the file is damaged")
        return numbers

    def _stored(self, data: memoryview, dtype: str, shape: tuple[int, ...], name: str) -> mx.array:
        numbers = mx.array(_numbers(data, dtype, shape, name))
        return numbers.view(mx.bfloat16) if dtype == "BF16" else numbers

    def _settle(self, arrays: list[mx.array]) -> list[mx.array]:
        mx.eval(arrays)
        self.nbytes += sum(array.nbytes for array in arrays)
        total = max(self._checkpoint.nbytes, self._done)
        self._progress(self._done, total)
        return arrays


def _numbers(data: memoryview, dtype: str, shape: tuple[int, ...], name: str) -> np.ndarray:
    kind = _NUMPY[dtype]
    expected = prod(shape) * kind.itemsize
    if data.nbytes != expected:
        raise ModelError(f"tensor {name} of {dtype} {list(shape)} has {data.nbytes} bytes, expected {expected}")
    numbers: np.ndarray = np.frombuffer(data, kind).reshape(shape)
    return numbers
