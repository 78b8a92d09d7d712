"""The head for multi-token prediction that some checkpoints bring (Gloeckle et al., 2024, arXiv:2404.19737; Qwen's form).

From the embedding of a token and the final-normed hidden state of the one before, each normalised by itself and joined by one
matrix, a decoder layer and a norm make the hidden state that the shared output projection turns into logits of the token after.
It is kept for speculative decoding; the output of the model does not depend on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlx.core as mx
from attrs import evolve, frozen

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lattice_core.types import TensorSpec
    from lattice_mlx.feed_forward import FeedForward, FeedForwardShape
    from lattice_mlx.grouped_attention import AttentionShape, GroupedAttention
    from lattice_mlx.kernels import Kernels
    from lattice_mlx.linear import Linear
    from lattice_mlx.mixture_of_experts import MixtureOfExperts, MixtureShape
    from lattice_mlx.norm import RMSNorm
    from lattice_mlx.rope import Rotation
    from lattice_mlx.step import Step
    from lattice_mlx.weights import WeightReader

_LAYER = "mtp.layers.0."
_NORMS = (
    "pre_fc_norm_embedding",
    "pre_fc_norm_hidden",
    "layers.0.input_layernorm",
    "layers.0.post_attention_layernorm",
    "norm",
)


@frozen
class MtpShape:
    """The head as a configuration describes it: one attention layer with the blocks of the model's own layers."""

    hidden: int
    attention: AttentionShape
    feed_forward: FeedForwardShape | MixtureShape

    def fit(self, specs: Mapping[str, TensorSpec]) -> MtpShape:
        """With the layouts that the checkpoint has."""
        return evolve(self, feed_forward=self.feed_forward.fit(specs, _LAYER))

    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes of its tensors."""
        names: dict[str, tuple[int, ...]] = {"mtp.fc.weight": (self.hidden, 2 * self.hidden)}
        names |= {f"mtp.{name}.weight": (self.hidden,) for name in _NORMS}
        return names | self.attention.tensors(_LAYER) | self.feed_forward.tensors(_LAYER)

    def build(self, weights: WeightReader, kernels: Kernels, eps: float, *, zero_centred: bool) -> MtpHead:
        """Read its weights. Adapters do not reach it."""
        known = len(weights.projections)
        norms = [weights.norm(f"mtp.{name}.weight", eps, zero_centred=zero_centred) for name in _NORMS]
        attention = self.attention.build(weights, kernels, _LAYER, 0, zero_centred=zero_centred)
        feed_forward = self.feed_forward.build(weights, kernels, _LAYER)
        del weights.projections[known:]
        return MtpHead(weights.linear(["mtp.fc.weight"]), norms, attention, feed_forward)


class MtpHead:
    """``embedded, hidden [tokens, hidden] -> [tokens, hidden]`` before the output projection."""

    def __init__(
        self,
        join: Linear,
        norms: list[RMSNorm],
        attention: GroupedAttention,
        feed_forward: FeedForward | MixtureOfExperts,
    ) -> None:
        self._join = join
        self._embedding_norm, self._hidden_norm, self._first_norm, self._second_norm, self._norm = norms
        self._attention = attention
        self._feed_forward = feed_forward

    def __call__(self, embedded: mx.array, hidden: mx.array, step: Step, rotate: Rotation) -> mx.array:
        """The tokens of ``step``; ``hidden`` is final-normed."""
        x = self._join(mx.concatenate([self._embedding_norm(embedded), self._hidden_norm(hidden)], axis=-1))
        x = x + self._attention(self._first_norm(x), step, rotate)
        return self._norm(x + self._feed_forward(self._second_norm(x), step))
