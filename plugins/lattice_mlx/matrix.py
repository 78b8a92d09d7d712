"""Weight matrices as arrays on the device: dense, or packed by MLX's affine scheme. Knows no names and no files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlx.core as mx
from attrs import frozen

if TYPE_CHECKING:
    from collections.abc import Sequence


@frozen(eq=False)
class DenseMatrix:
    """``values`` [out, in]."""

    values: mx.array


@frozen(eq=False)
class QuantizedMatrix:
    """Affine groups along rows: ``words`` uint32 [out, in * bits / 32], ``scales`` and ``biases`` [out, in / group_size]."""

    words: mx.array
    scales: mx.array
    biases: mx.array
    group_size: int
    bits: int

    def expanded(self) -> DenseMatrix:
        """The weights ``q * scale + bias``, in the dtype of the scales."""
        return DenseMatrix(mx.dequantize(self.words, self.scales, self.biases, group_size=self.group_size, bits=self.bits))

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


def stacked(parts: Sequence[Matrix]) -> Matrix | None:
    """Matrices of equal width one above the other, where one matrix can hold them; None for mixed schemes."""
    first = parts[0]
    if len(parts) == 1:
        return first
    if isinstance(first, DenseMatrix):
        dense = [part.values for part in parts if isinstance(part, DenseMatrix)]
        return DenseMatrix(mx.concatenate(dense)) if len(dense) == len(parts) else None
    same = [part for part in parts if isinstance(part, QuantizedMatrix) and _scheme(part) == _scheme(first)]
    if len(same) != len(parts):
        return None
    return QuantizedMatrix(
        mx.concatenate([part.words for part in same]),
        mx.concatenate([part.scales for part in same]),
        mx.concatenate([part.biases for part in same]),
        first.group_size,
        first.bits,
    )


def _scheme(matrix: QuantizedMatrix) -> tuple[int, int]:
    return matrix.group_size, matrix.bits
