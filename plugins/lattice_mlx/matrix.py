"""Weight matrices as arrays on the device: dense, or packed by MLX's affine scheme. Knows no names and no files.

A stack of matrices, as experts have it, is the same with one axis more in front.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlx.core as mx
from attrs import frozen

if TYPE_CHECKING:
    from collections.abc import Sequence


@frozen(eq=False)
class DenseMatrix:
    """``values`` [..., out, in]."""

    values: mx.array

    def as_stack(self) -> DenseMatrix:
        """A stack of this one matrix."""
        return DenseMatrix(self.values[None])


@frozen(eq=False)
class QuantizedMatrix:
    """Affine groups along rows: ``words`` uint32 [..., out, in * bits / 32], scales and biases [..., out, in / group_size]."""

    words: mx.array
    scales: mx.array
    biases: mx.array
    group_size: int
    bits: int

    def expanded(self) -> DenseMatrix:
        """The weights ``q * scale + bias``, in the dtype of the scales."""
        return DenseMatrix(mx.dequantize(self.words, self.scales, self.biases, group_size=self.group_size, bits=self.bits))

    def as_stack(self) -> QuantizedMatrix:
        """A stack of this one matrix."""
        return QuantizedMatrix(self.words[None], self.scales[None], self.biases[None], self.group_size, self.bits)

    def rows(self, indices: mx.array) -> mx.array:
        """Some rows, expanded: [indices, in]."""
        return mx.dequantize(
            self.words[indices], self.scales[indices], self.biases[indices], group_size=self.group_size, bits=self.bits
        )

    def times(self, x: mx.array) -> mx.array:
        """``x @ W.T`` for x [rows, in]."""
        return mx.quantized_matmul(
            x, self.words, self.scales, self.biases, transpose=True, group_size=self.group_size, bits=self.bits
        )


Matrix = DenseMatrix | QuantizedMatrix


def stacked(parts: Sequence[Matrix], axis: int = 0) -> Matrix | None:
    """Matrices concatenated along ``axis`` (0: one above the other), where one matrix can hold them; None for mixed schemes."""
    first = parts[0]
    if len(parts) == 1:
        return first
    if isinstance(first, DenseMatrix):
        dense = [part.values for part in parts if isinstance(part, DenseMatrix)]
        return DenseMatrix(mx.concatenate(dense, axis)) if len(dense) == len(parts) else None
    same = [part for part in parts if isinstance(part, QuantizedMatrix) and _scheme(part) == _scheme(first)]
    if len(same) != len(parts):
        return None
    return QuantizedMatrix(
        mx.concatenate([part.words for part in same], axis),
        mx.concatenate([part.scales for part in same], axis),
        mx.concatenate([part.biases for part in same], axis),
        first.group_size,
        first.bits,
    )


def matrix_arrays(matrix: Matrix) -> list[mx.array]:
    """What a matrix holds."""
    return [matrix.values] if isinstance(matrix, DenseMatrix) else [matrix.words, matrix.scales, matrix.biases]


def _scheme(matrix: QuantizedMatrix) -> tuple[int, int]:
    return matrix.group_size, matrix.bits
