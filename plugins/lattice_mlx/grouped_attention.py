"""The attention block of a decoder layer: projections, rotary positions, grouped queries (arXiv:2305.13245).

With the variations that families have: biases, normalised queries and keys (Qwen3), and a sigmoid gate on the output whose rows
stand beside each query head's (Qwen3.5: arXiv:2505.06708). Owns their tensors and arithmetic; knows no caches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlx.core as mx
from attrs import frozen

if TYPE_CHECKING:
    from lattice_mlx.kernels import HeadGeometry, Kernels
    from lattice_mlx.norm import RMSNorm
    from lattice_mlx.projection import Projection
    from lattice_mlx.rope import Rotation
    from lattice_mlx.step import Step
    from lattice_mlx.weights import WeightReader


@frozen
class AttentionShape:
    """One attention block as a configuration describes it. ``norm_eps`` None: queries and keys are not normalised."""

    hidden: int
    heads: HeadGeometry
    bias: bool = False
    out_bias: bool = False
    gated: bool = False
    norm_eps: float | None = None

    def tensors(self, prefix: str) -> dict[str, tuple[int, ...]]:
        """Names and shapes below the layer ``prefix`` (``model.layers.0.``)."""
        width = self.heads.head_dim
        queries, keys = self.heads.heads * width, self.heads.kv_heads * width
        shapes = {
            "q_proj": (queries * (2 if self.gated else 1), self.hidden),
            "k_proj": (keys, self.hidden),
            "v_proj": (keys, self.hidden),
            "o_proj": (self.hidden, queries),
        }
        names: dict[str, tuple[int, ...]] = {}
        for name, shape in shapes.items():
            names[f"{prefix}self_attn.{name}.weight"] = shape
            if self.out_bias if name == "o_proj" else self.bias:
                names[f"{prefix}self_attn.{name}.bias"] = shape[:1]
        if self.norm_eps is not None:
            names[f"{prefix}self_attn.q_norm.weight"] = names[f"{prefix}self_attn.k_norm.weight"] = (width,)
        return names

    def build(
        self, weights: WeightReader, kernels: Kernels, prefix: str, cache: int, *, zero_centred: bool
    ) -> GroupedAttention:
        """Read the block; ``cache`` is its place among the layers with keys and values."""
        block = f"{prefix}self_attn."
        qkv = weights.projection(block, ("q_proj", "k_proj", "v_proj"), bias=self.bias)
        out = weights.projection(block, ("o_proj",), bias=self.out_bias)
        norms = None
        if self.norm_eps is not None:
            q_norm = weights.norm(f"{block}q_norm.weight", self.norm_eps, zero_centred=zero_centred)
            k_norm = weights.norm(f"{block}k_norm.weight", self.norm_eps, zero_centred=zero_centred)
            norms = (q_norm, k_norm)
        return GroupedAttention(self, qkv, out, norms, kernels, cache)


class GroupedAttention:
    """``x [tokens, hidden] -> [tokens, hidden]``."""

    def __init__(
        self,
        shape: AttentionShape,
        qkv: Projection,
        out: Projection,
        norms: tuple[RMSNorm, RMSNorm] | None,
        kernels: Kernels,
        cache: int,
    ) -> None:
        self._shape = shape
        self._qkv = qkv
        self._out = out
        self._norms = norms
        self._kernels = kernels
        self._cache = cache

    def __call__(self, x: mx.array, step: Step, rotate: Rotation) -> mx.array:
        """Attend to everything before, and to itself."""
        heads = self._shape.heads
        q, gate, kv = self._projected(x, step, rotate)
        mixed = step.attend(self._kernels.attention, self._cache, q, kv).reshape(-1, heads.heads * heads.head_dim)
        return self._out(mixed if gate is None else mixed * mx.sigmoid(gate), step)

    def _projected(self, x: mx.array, step: Step, rotate: Rotation) -> tuple[mx.array, mx.array | None, mx.array]:
        """Turned queries [tokens, heads, d], the gate [tokens, heads * d] if any, keys and values [tokens, 2 * kv_heads, d]."""
        heads, kv_heads, head_dim = self._shape.heads.heads, self._shape.heads.kv_heads, self._shape.heads.head_dim
        qkv = self._qkv(x, step)
        gate = None
        if self._shape.gated:
            split = 2 * heads * head_dim
            both = qkv[:, :split].reshape(-1, heads, 2 * head_dim)
            gate = both[..., head_dim:].reshape(-1, heads * head_dim)
            q, kv = both[..., :head_dim], qkv[:, split:].reshape(-1, 2 * kv_heads, head_dim)
            qk = None
        else:
            qkv = qkv.reshape(-1, heads + 2 * kv_heads, head_dim)
            q, kv, qk = qkv[:, :heads], qkv[:, heads:], qkv[:, : heads + kv_heads]
        if self._norms is not None or qk is None:
            k = kv[:, :kv_heads]
            if self._norms is not None:
                q, k = self._norms[0](q), self._norms[1](k)
            qk = mx.concatenate([q, k], axis=1)
        # Queries and keys turn together; keys and values then travel as one array, written to the cache at once.
        turned = rotate(qk)
        return turned[:, :heads], gate, mx.concatenate([turned[:, heads:], kv[:, kv_heads:]], axis=1)
