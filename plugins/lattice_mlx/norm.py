"""Root mean square normalisation: ``x / sqrt(mean(x^2) + eps) * weight`` (Zhang and Sennrich, 2019, arXiv:1910.07467)."""

from __future__ import annotations

import mlx.core as mx
from attrs import frozen


@frozen(eq=False)
class RMSNorm:
    """``x [..., width] -> [..., width]`` in ``dtype``; x and ``weight`` [width] have that dtype or are float32; sums are."""

    weight: mx.array
    eps: float
    dtype: mx.Dtype

    def __call__(self, x: mx.array) -> mx.array:
        """Each vector along the last axis normalised and scaled."""
        return mx.fast.rms_norm(x, self.weight, self.eps).astype(self.dtype)
