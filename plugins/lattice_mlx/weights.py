"""Brings the tensors of a checkpoint onto the device: checked, converted, expanded or kept packed, fused, evaluated.

Owns the accounting of names and shapes, the conversion of stored bytes, and the count of bytes held. Everything is evaluated
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
from lattice_mlx.matrix import DenseMatrix, QuantizedMatrix

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from lattice_core.protocols import Checkpoint
    from lattice_core.types import AffineQuantization, TensorData, TensorSpec
    from lattice_mlx.linear import Linear
    from lattice_mlx.matrix import Matrix
    from lattice_mlx.target import Target

_NUMPY: dict[str, np.dtype[Any]] = {
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype("<u2"),
    "U32": np.dtype("<u4"),
}
_FLOATS = ("F32", "F16", "BF16")
GROUP_SIZES = (32, 64, 128)
BITS = (2, 4, 8)
_NAMED = 5
_SAMPLED_BYTES = 4096


def check_tensors(
    specs: Mapping[str, TensorSpec], expected: Mapping[str, tuple[int, ...]], ignored: Callable[[str], bool]
) -> None:
    """Compare a checkpoint's tensors with what an architecture wants, before anything is read.

    ``ignored(name)`` says which further tensors are harmless. Raises ``ModelError`` that names the first few at fault.
    """
    missing = [name for name in expected if name not in specs]
    if missing:
        raise ModelError(f"the checkpoint lacks {_listed(missing)}")
    surplus = [name for name in specs if name not in expected and not ignored(name)]
    if surplus:
        raise ModelError(f"the checkpoint holds {_listed(surplus)}, which the architecture of its config does not use")
    wrong = [
        f"{name} is {list(specs[name].shape)}, the config asks for {list(shape)}"
        for name, shape in expected.items()
        if tuple(specs[name].shape) != shape
    ]
    if wrong:
        raise ModelError(f"{len(wrong)} tensors have another shape than expected: {'; '.join(wrong[:_NAMED])}")
    for name in expected:
        _check_storage(specs[name])


def expanded_bytes(specs: Iterable[TensorSpec], itemsize: int) -> int:
    """Bytes that the tensors take when all are dense with ``itemsize`` bytes for each element."""
    return sum(prod(spec.shape) for spec in specs) * itemsize


class WeightReader:
    """Reads one checkpoint for one target. ``expand`` says that quantised matrices become dense.

    ``progress(done, total)`` is called with bytes as stored. All methods raise ``ModelError`` for a tensor whose bytes do
    not fit its description. ``nbytes`` counts the arrays that were handed out.
    """

    def __init__(self, checkpoint: Checkpoint, target: Target, *, expand: bool, progress: Callable[[int, int], None]) -> None:
        self._checkpoint = checkpoint
        self._target = target
        self._expand = expand
        self._progress = progress
        self._done = 0
        self._digest = blake2b(json.dumps(dict(checkpoint.config), sort_keys=True, default=str).encode(), digest_size=16)
        self.nbytes = 0

    def vector(self, name: str) -> mx.array:
        """A one-dimensional tensor in the target's dtype."""
        data = self._read(name)
        return self._settle([self._floats(data.data, data.spec.dtype, data.spec.shape, name)])[0]

    def embedding(self, name: str) -> Embedding:
        """The table [vocabulary, hidden]."""
        embedding = Embedding(self._matrix(name))
        self._settle(embedding.arrays())
        return embedding

    def linear(self, names: Sequence[str], biases: Sequence[str] = ()) -> Linear:
        """One layer of all the matrices ``names`` that share an input, with their ``biases`` or none."""
        vectors = [self._floats(data.data, data.spec.dtype, data.spec.shape, name) for name, data in self._each(biases)]
        layer = fused_linear(
            [self._matrix(name) for name in names], vectors, column_major=self._target.on_cpu and self._dense_is_float32
        )
        self._settle(layer.arrays())
        return layer

    def fingerprint(self) -> str:
        """A digest of the configuration and of the names, shapes and first bytes of all tensors read so far."""
        return self._digest.hexdigest()

    # ------------------------------------------------------------------------------------ one tensor

    @property
    def _dense_is_float32(self) -> bool:
        return self._target.dtype_name == "float32"

    def _each(self, names: Sequence[str]) -> Iterable[tuple[str, TensorData]]:
        return [(name, self._read(name)) for name in names]

    def _read(self, name: str) -> TensorData:
        data = self._checkpoint.read(name)
        self._digest.update(f"{name}{data.spec.dtype}{data.spec.shape}{data.spec.quantization}".encode())
        self._digest.update(data.data[:_SAMPLED_BYTES])
        self._done += sum(part.nbytes for part in (data.data, data.scales, data.biases) if part is not None)
        return data

    def _matrix(self, name: str) -> Matrix:
        data = self._read(name)
        scheme = data.spec.quantization
        if scheme is None:
            return DenseMatrix(self._floats(data.data, data.spec.dtype, data.spec.shape, name))
        if data.scales is None or data.biases is None:
            raise ModelError(f"tensor {name} is quantised and has no scales or biases")
        out, width = data.spec.shape
        groups = (out, width // scheme.group_size)
        words = mx.array(_numbers(data.data, "U32", (out, width * scheme.bits // 32), name))
        scales = self._floats(data.scales, scheme.scale_dtype, groups, f"{name} (scales)")
        biases = self._floats(data.biases, scheme.scale_dtype, groups, f"{name} (biases)")
        matrix = QuantizedMatrix(words, scales, biases, scheme.group_size, scheme.bits)
        return matrix.expanded() if self._expand else matrix

    def _floats(self, data: memoryview, dtype: str, shape: tuple[int, ...], name: str) -> mx.array:
        numbers = mx.array(_numbers(data, dtype, shape, name))
        if dtype == "BF16":
            numbers = numbers.view(mx.bfloat16)
        return numbers.astype(self._target.dtype)

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


def _check_storage(spec: TensorSpec) -> None:
    scheme = spec.quantization
    if scheme is None:
        if spec.dtype not in _FLOATS:
            raise ModelError(f"tensor {spec.name} is {spec.dtype}; the mlx backend reads {', '.join(_FLOATS)}")
        return
    _check_scheme(spec, scheme)


def _check_scheme(spec: TensorSpec, scheme: AffineQuantization) -> None:
    name = spec.name
    if scheme.bits not in BITS or scheme.group_size not in GROUP_SIZES:
        raise ModelError(
            f"tensor {name} is quantised to {scheme.bits} bits in groups of {scheme.group_size}; the mlx backend reads"
            f" {', '.join(map(str, BITS))} bits in groups of {', '.join(map(str, GROUP_SIZES))}"
        )
    if scheme.scale_dtype not in _FLOATS:
        raise ModelError(f"tensor {name} has scales of {scheme.scale_dtype}; the mlx backend reads {', '.join(_FLOATS)}")
    if len(spec.shape) != 2 or spec.shape[1] % scheme.group_size:  # noqa: PLR2004  a matrix has two axes
        raise ModelError(f"tensor {name} {list(spec.shape)} does not divide into groups of {scheme.group_size}")


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_NAMED])
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{len(names)} tensor{'s' if len(names) > 1 else ''}: {shown}{more}"
