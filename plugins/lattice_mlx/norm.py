"""Root mean square normalisation: ``x / sqrt(mean(x^2) + eps) * weight`` (Zhang and Sennrich, 2019, arXiv:1910.07467)."""

from __future__ import annotations

import mlx.core as mx
from attrs import frozen


@frozen(eq=False)
class RMSNorm:
    """``x [..., width] -> [..., width]`` in the dtype of x; ``weight`` [width] has that dtype or is float32; sums are."""

    weight: mx.array
    eps: float

    def __call__(self, x: mx.array) -> mx.array:
        """Each vector along the last axis normalised and scaled."""
        normed = mx.fast.rms_norm(x, self.weight, self.eps)
        return normed if normed.dtype == x.dtype else normed.astype(x.dtype)
