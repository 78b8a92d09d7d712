"""The token embedding: rows of a table, which also serves as the output projection of models that tie both."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lattice_mlx.linear import DenseLinear, QuantizedLinear
from lattice_mlx.matrix import DenseMatrix, matrix_arrays

if TYPE_CHECKING:
    import mlx.core as mx

    from lattice_mlx.linear import Linear
    from lattice_mlx.matrix import Matrix


class Embedding:
    """``tokens [rows] -> [rows, hidden]`` from a dense or packed table [vocabulary, hidden]."""

    def __init__(self, table: Matrix) -> None:
        self._table = table

    def arrays(self) -> list[mx.array]:
        """What it holds."""
        return matrix_arrays(self._table)

    def __call__(self, tokens: mx.array) -> mx.array:
        """The rows of int32 ``tokens`` [rows]."""
        table = self._table
        return table.values[tokens] if isinstance(table, DenseMatrix) else table.rows(tokens)

    def as_output(self) -> Linear:
        """The output projection of a tied model: ``hidden [rows, hidden] -> logits [rows, vocabulary]``, on the same arrays."""
        table = self._table
        return DenseLinear(table.values) if isinstance(table, DenseMatrix) else QuantizedLinear(table)
