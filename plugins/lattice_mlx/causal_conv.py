"""The short causal convolution of recurrent blocks: depthwise, over time, as shifted multiply-adds in float32.

For a handful of taps MLX's own convolution is several times slower on the CPU (measured). Knows no layers.
"""

from __future__ import annotations

import mlx.core as mx

from lattice_mlx.activation import in_blocks


def causal_conv(x: mx.array, window: mx.array, weight: mx.array) -> tuple[mx.array, mx.array]:
    """Convolve the tokens of one sequence with what came before them.

    ``x`` [T, C]; ``window`` [K - 1, C], the inputs before x, oldest first; ``weight`` [K, C], its last row multiplies
    the present input. Returns float32 [T, C] and the new window, in the dtype of x.
    """
    tokens, taps = x.shape[0], weight.shape[0]
    whole = mx.concatenate([window.astype(x.dtype), x])
    wide = whole.astype(mx.float32)
    shifted = [wide[tap : tap + tokens] for tap in range(taps)]

    def weighted(*inputs: mx.array) -> mx.array:
        y = inputs[0] * weight[0]
        for tap in range(1, taps):
            y = y + inputs[tap] * weight[tap]
        return y

    # Blocks keep the sums in a CPU's cache; on a GPU each would only be more kernels to launch.
    y = in_blocks(weighted, *shifted) if mx.default_device() == mx.cpu else weighted(*shifted)
    return y, whole[tokens:]


def causal_conv_step(x: mx.array, window: mx.array, weight: mx.array) -> tuple[mx.array, mx.array]:
    """As ``causal_conv`` for one token of each of B rows: ``x`` [B, C], ``window`` [B, K - 1, C].

    Returns float32 [B, C] and the new window.
    """
    whole = mx.concatenate([window.astype(x.dtype), x[:, None]], axis=1)
    return mx.sum(whole.astype(mx.float32) * weight, axis=1), whole[:, 1:]
