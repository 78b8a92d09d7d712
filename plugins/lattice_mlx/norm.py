"""Root mean square normalisation: ``x / sqrt(mean(x^2) + eps) * weight`` (Zhang and Sennrich, 2019, arXiv:1910.07467)."""

from __future__ import annotations

import mlx.core as mx
from attrs import frozen


@frozen(eq=False)
class RMSNorm:
    """``x [rows, width] -> [rows, width]``; ``weight`` [width] has the dtype of x, the sum is float32."""

    weight: mx.array
    eps: float

    def __call__(self, x: mx.array) -> mx.array:
        """Each row of x normalised and scaled."""
        return mx.fast.rms_norm(x, self.weight, self.eps)
