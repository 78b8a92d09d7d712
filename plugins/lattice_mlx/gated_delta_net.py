"""The recurrent block of hybrid models: Gated DeltaNet (Yang et al., 2024, arXiv:2412.06464) as Qwen3.5 has it.

Queries, keys and values go through a short causal convolution and SiLU; a state of fixed size per value head follows the gated
delta rule; the output is normalised, gated and projected. Decay, write strength and state belong to value heads; a key head
serves a run of them. Owns the tensors and the arithmetic around ``delta_rule``; knows no caches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlx.core as mx
from attrs import evolve, frozen

from lattice_core.errors import ModelError
from lattice_mlx.causal_conv import causal_conv, causal_conv_step
from lattice_mlx.delta_rule import CHUNK, CHUNK_ON_CPU, delta_rule, delta_step, log_decay, normalized
from lattice_mlx.kv_cache import RecurrentArray

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lattice_core.types import TensorSpec
    from lattice_mlx.kernels import Kernels
    from lattice_mlx.projection import Projection
    from lattice_mlx.rope import Rotation
    from lattice_mlx.step import Step
    from lattice_mlx.weights import WeightReader


@frozen
class DeltaNetShape:
    """One block as a configuration describes it.

    ``channels_first`` says how the convolution is stored: [channels, 1, kernel] (Hugging Face) or [channels, kernel, 1] (MLX).
    """

    hidden: int
    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    kernel: int
    norm_eps: float
    channels_first: bool = True

    @property
    def keys(self) -> int:
        """Width of all key heads."""
        return self.key_heads * self.key_dim

    @property
    def values(self) -> int:
        """Width of all value heads."""
        return self.value_heads * self.value_dim

    @property
    def channels(self) -> int:
        """Channels of the convolution: queries, keys and values."""
        return 2 * self.keys + self.values

    def fit(self, specs: Mapping[str, TensorSpec], prefix: str) -> DeltaNetShape:
        """With the layout that the checkpoint stores the convolution in. Raises ``ModelError`` where it could be either."""
        spec = specs.get(f"{prefix}linear_attn.conv1d.weight")
        if spec is None:
            return self
        if self.kernel == 1:
            raise ModelError("config.linear_conv_kernel_dim is 1, which does not tell how the convolution is stored")
        return evolve(self, channels_first=spec.shape != (self.channels, self.kernel, 1))

    def tensors(self, prefix: str) -> dict[str, tuple[int, ...]]:
        """Names and shapes below the layer ``prefix``."""
        block = f"{prefix}linear_attn."
        return {
            f"{block}in_proj_qkv.weight": (self.channels, self.hidden),
            f"{block}in_proj_z.weight": (self.values, self.hidden),
            f"{block}in_proj_b.weight": (self.value_heads, self.hidden),
            f"{block}in_proj_a.weight": (self.value_heads, self.hidden),
            f"{block}conv1d.weight": (self.channels, 1, self.kernel)
            if self.channels_first
            else (self.channels, self.kernel, 1),
            f"{block}A_log": (self.value_heads,),
            f"{block}dt_bias": (self.value_heads,),
            f"{block}norm.weight": (self.value_dim,),
            f"{block}out_proj.weight": (self.hidden, self.values),
        }

    def state(self, dtype: mx.Dtype) -> tuple[RecurrentArray, RecurrentArray]:
        """The convolution's last inputs, in the activations' dtype, and the state of the delta rule, in float32."""
        return (
            RecurrentArray((self.kernel - 1, self.channels), dtype),
            RecurrentArray((self.value_heads, self.key_dim, self.value_dim), mx.float32),
        )

    def build(self, weights: WeightReader, kernels: Kernels, prefix: str, places: slice) -> GatedDeltaNet:
        """Read the block; ``places`` are its two arrays among the recurrent ones."""
        block = f"{prefix}linear_attn."
        return GatedDeltaNet(
            self,
            weights.projection(block, ("in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a")),
            weights.projection(block, ("out_proj",)),
            mx.contiguous(weights.exact(f"{block}conv1d.weight").reshape(self.channels, self.kernel).T),
            (weights.exact(f"{block}A_log"), weights.exact(f"{block}dt_bias")),
            weights.exact(f"{block}norm.weight"),
            kernels,
            places,
        )


class GatedDeltaNet:
    """``x [tokens, hidden] -> [tokens, hidden]``. Implements ``segments.Recurrence``."""

    def __init__(
        self,
        shape: DeltaNetShape,
        inward: Projection,
        out: Projection,
        conv: mx.array,
        decay: tuple[mx.array, mx.array],
        norm: mx.array,
        kernels: Kernels,
        places: slice,
    ) -> None:
        self._shape = shape
        self._inward = inward
        self._out = out
        self._conv = conv
        self._a_log, self._dt_bias = decay
        self._norm = norm
        self._kernels = kernels
        self._places = places

    def __call__(self, x: mx.array, step: Step, rotate: Rotation) -> mx.array:
        """Every token after those before it; positions play no part."""
        del rotate
        shape = self._shape
        projected = self._inward(x, step)
        z_start, b_start = shape.channels, shape.channels + shape.values
        z = projected[:, z_start:b_start]
        b = projected[:, b_start : b_start + shape.value_heads].astype(mx.float32)
        a = projected[:, b_start + shape.value_heads :]
        decay = log_decay(a, self._a_log, self._dt_bias)
        mixed = step.recur(self, self._places, (projected[:, :z_start], decay, mx.sigmoid(b)))
        normed = mx.fast.rms_norm(mixed, self._norm, shape.norm_eps).reshape(-1, shape.values)
        return self._out(self._kernels.swiglu(z.astype(mx.float32), normed).astype(x.dtype), step)

    def step(self, inputs: tuple[mx.array, ...], states: list[mx.array]) -> tuple[mx.array, list[mx.array]]:
        """One token for each of several rows: -> float32 [rows, value_heads, value_dim]."""
        qkv, decay, beta = inputs
        window, state = states
        convolved, window = causal_conv_step(qkv, window, self._conv)
        outputs, state = delta_step(*self._heads(convolved), decay, beta, state)
        return outputs, [window, state]

    def chunk(self, inputs: tuple[mx.array, ...], states: list[mx.array]) -> tuple[mx.array, list[mx.array]]:
        """Many tokens of one row: -> float32 [tokens, value_heads, value_dim]."""
        qkv, decay, beta = inputs
        window, state = states[0][0], states[1][0]
        convolved, window = causal_conv(qkv, window, self._conv)
        chunk = CHUNK_ON_CPU if self._kernels.on_cpu else CHUNK
        outputs, state = delta_rule(*self._heads(convolved), decay, beta, state, chunk)
        return outputs, [window[None], state[None]]

    def _heads(self, convolved: mx.array) -> tuple[mx.array, mx.array, mx.array]:
        """Queries, keys [tokens, key_heads, key_dim] and values [tokens, value_heads, value_dim] in float32."""
        shape = self._shape
        x = self._kernels.silu(convolved.astype(mx.float32))
        q = x[:, : shape.keys].reshape(-1, shape.key_heads, shape.key_dim)
        k = x[:, shape.keys : 2 * shape.keys].reshape(-1, shape.key_heads, shape.key_dim)
        v = x[:, 2 * shape.keys :].reshape(-1, shape.value_heads, shape.value_dim)
        return normalized(q, shape.key_dim**-0.5), normalized(k), v
