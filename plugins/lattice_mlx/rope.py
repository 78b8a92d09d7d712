"""Rotary position embedding of packed tokens, each at a position of its own (half-split pairs: i and i + head_dim / 2).

Knows frequencies only, not where they come from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlx.core as mx

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    Rotation = Callable[[mx.array], mx.array]


class PlainRoPE:
    """Rotation by ordinary operations: the fast way on the CPU, and what the fused kernel is checked against.

    ``frequencies`` float32 [head_dim / 2] or fewer, radians per position.
    """

    def __init__(self, frequencies: np.ndarray) -> None:
        self._frequencies = mx.array(frequencies)

    def at(self, positions: mx.array) -> Rotation:
        """The rotation of x [tokens, heads, head_dim] for int32 positions [tokens]; angles and products are float32.

        Where there are fewer frequencies than pairs, the dimensions after theirs stay as they are.
        """
        angles = positions[:, None].astype(mx.float32) * self._frequencies
        cos, sin = mx.cos(angles), mx.sin(angles)
        cosines = mx.concatenate([cos, cos], axis=-1)[:, None]
        sines = mx.concatenate([-sin, sin], axis=-1)[:, None]
        half = self._frequencies.size

        def rotate(x: mx.array) -> mx.array:
            turned, rest = x[..., : 2 * half], x[..., 2 * half :]
            swapped = mx.concatenate([x[..., half : 2 * half], x[..., :half]], axis=-1)
            turned = (turned * cosines + swapped * sines).astype(x.dtype)
            return mx.concatenate([turned, rest], axis=-1) if rest.shape[-1] else turned

        return rotate


class FusedRoPE:
    """The same by MLX's kernel, every token as a sequence of one token with its own offset."""

    def __init__(self, frequencies: np.ndarray) -> None:
        # The kernel takes the inverse of frequencies.
        self._periods = mx.array(1.0 / frequencies)

    def at(self, positions: mx.array) -> Rotation:
        """As ``PlainRoPE.at``."""
        periods = self._periods
        dims = 2 * periods.size

        def rotate(x: mx.array) -> mx.array:
            rotated = mx.fast.rope(
                x[:, :, None], dims, traditional=False, base=None, scale=1.0, offset=positions, freqs=periods
            )
            return rotated[:, :, 0]

        return rotate


RoPE = PlainRoPE | FusedRoPE
