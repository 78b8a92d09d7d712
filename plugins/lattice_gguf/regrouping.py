"""Rows or columns that a file keeps in another order than Hugging Face notation, moved back.

Owns the one shape that all such orders have: a table of groups, stored by its other axis. Must not know which tensors are
concerned, nor how blocks are decoded.
"""

from __future__ import annotations

import numpy as np
from attrs import evolve, frozen


@frozen
class Regrouping:
    """From ``start`` on, an axis is [outer, first, second, unit] in the file and [outer, second, first, unit] handed out.

    What stands before ``start`` stays; ``outer`` is as many as there are. ``columns`` says that the axis is the last one of
    a matrix, not the first.
    """

    first: int
    second: int
    unit: int = 1
    start: int = 0
    columns: bool = False

    def divides_by(self, size: int) -> bool:
        """Whether only whole runs of ``size`` neighbours move."""
        return self.start % size == 0 and self.unit % size == 0

    def in_runs(self, size: int) -> Regrouping:
        """The same for an axis that counts runs of ``size`` neighbours."""
        return evolve(self, unit=self.unit // size, start=self.start // size)

    def apply(self, table: np.ndarray) -> np.ndarray:
        """A copy of ``table`` [rows, columns, ...] with its rows or columns moved; C-contiguous."""
        axis = int(self.columns)
        places = np.arange(self.start, table.shape[axis]).reshape(-1, self.first, self.second, self.unit)
        order = np.concatenate([np.arange(self.start), places.swapaxes(1, 2).ravel()])
        return np.ascontiguousarray(table.take(order, axis=axis))
