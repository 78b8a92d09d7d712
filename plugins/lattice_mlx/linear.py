"""Linear layers: ``y = x @ W.T + b`` with a dense or quantised W, several projections of one input fused into one.

Fewer and larger products are faster on every device. Knows no tensor names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlx.core as mx

from lattice_mlx.matrix import DenseMatrix, QuantizedMatrix, stacked

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lattice_mlx.matrix import Matrix


class DenseLinear:
    """``x [rows, in] -> [rows, out]``.

    ``column_major`` False keeps W as [out, in] and multiplies by its transposed view, which costs nothing. True stores
    [in, out]: measured on CPUs, OpenBLAS' AVX2 kernels then read the weights of a single row about a tenth faster.
    """

    def __init__(self, values: mx.array, bias: mx.array | None = None, *, column_major: bool = False) -> None:
        self._factor = mx.contiguous(values.T) if column_major else values.T
        self._bias = bias

    def arrays(self) -> list[mx.array]:
        """What it holds."""
        return [self._factor] if self._bias is None else [self._factor, self._bias]

    def __call__(self, x: mx.array) -> mx.array:
        """``x W^T + b``."""
        y = x @ self._factor
        return y if self._bias is None else y + self._bias


class QuantizedLinear:
    """``x [rows, in] -> [rows, out]`` with packed weights."""

    def __init__(self, matrix: QuantizedMatrix, bias: mx.array | None = None) -> None:
        self._matrix = matrix
        self._bias = bias

    def arrays(self) -> list[mx.array]:
        """What it holds."""
        held = [self._matrix.words, self._matrix.scales, self._matrix.biases]
        return held if self._bias is None else [*held, self._bias]

    def __call__(self, x: mx.array) -> mx.array:
        """``x W^T + b``."""
        y = self._matrix.times(x)
        return y if self._bias is None else y + self._bias


class SideBySide:
    """Projections of one input that no single matrix can hold: their outputs, concatenated."""

    def __init__(self, parts: Sequence[Linear], bias: mx.array | None = None) -> None:
        self._parts = tuple(parts)
        self._bias = bias

    def arrays(self) -> list[mx.array]:
        """What it holds."""
        held = [array for part in self._parts for array in part.arrays()]
        return held if self._bias is None else [*held, self._bias]

    def __call__(self, x: mx.array) -> mx.array:
        """``x W^T + b``."""
        y = mx.concatenate([part(x) for part in self._parts], axis=-1)
        return y if self._bias is None else y + self._bias


Linear = DenseLinear | QuantizedLinear | SideBySide


def fused_linear(parts: Sequence[Matrix], biases: Sequence[mx.array], *, column_major: bool) -> Linear:
    """One layer whose output is that of all ``parts`` in turn; ``biases`` is empty or has one vector for each part."""
    bias = (biases[0] if len(biases) == 1 else mx.concatenate(list(biases))) if biases else None
    whole = stacked(parts)
    if isinstance(whole, DenseMatrix):
        return DenseLinear(whole.values, bias, column_major=column_major)
    if isinstance(whole, QuantizedMatrix):
        return QuantizedLinear(whole, bias)
    return SideBySide([fused_linear([part], [], column_major=column_major) for part in parts], bias)
