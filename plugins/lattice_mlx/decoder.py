"""The pre-norm decoder that all architectures here share: an embedding, layers of a mixer and a feed-forward, a norm, a head.

A blueprint is the checked form of a configuration, made of the shapes of its blocks; it says which tensors it needs and builds
the network. Which blocks a family has, and with which numbers, is for the architectures' own files.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import mlx.core as mx
import numpy as np  # noqa: TC002  attrs reads the annotations
from attrs import evolve, field, frozen

from lattice_core.errors import ModelError
from lattice_mlx.gated_delta_net import DeltaNetShape
from lattice_mlx.grouped_attention import AttentionShape
from lattice_mlx.kernels import HeadGeometry, choose_kernels
from lattice_mlx.kv_cache import CacheGeometry
from lattice_mlx.segments import WholeSegment
from lattice_mlx.step import Step

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lattice_core.types import TensorSpec
    from lattice_mlx.embedding import Embedding
    from lattice_mlx.feed_forward import FeedForward, FeedForwardShape
    from lattice_mlx.gated_delta_net import GatedDeltaNet
    from lattice_mlx.grouped_attention import GroupedAttention
    from lattice_mlx.kernels import Kernels
    from lattice_mlx.linear import Linear
    from lattice_mlx.mixture_of_experts import MixtureOfExperts, MixtureShape
    from lattice_mlx.mtp_head import MtpHead, MtpShape
    from lattice_mlx.norm import RMSNorm
    from lattice_mlx.rope import Rotation
    from lattice_mlx.target import Target
    from lattice_mlx.weights import WeightReader

_HARMLESS = re.compile(r"rotary_emb\.inv_freq$")


@frozen
class LayerShape:
    """One layer as a configuration describes it."""

    mixer: AttentionShape | DeltaNetShape
    feed_forward: FeedForwardShape | MixtureShape

    def fit(self, specs: Mapping[str, TensorSpec], prefix: str) -> LayerShape:
        """With the layouts that the checkpoint has."""
        mixer = self.mixer.fit(specs, prefix) if isinstance(self.mixer, DeltaNetShape) else self.mixer
        return evolve(self, mixer=mixer, feed_forward=self.feed_forward.fit(specs, prefix))

    def tensors(self, prefix: str, hidden: int) -> dict[str, tuple[int, ...]]:
        """Names and shapes below ``prefix``."""
        norms = {f"{prefix}{name}.weight": (hidden,) for name in ("input_layernorm", "post_attention_layernorm")}
        return norms | self.mixer.tensors(prefix) | self.feed_forward.tensors(prefix)


@frozen(eq=False, kw_only=True)
class DecoderBlueprint:
    """A checked configuration. ``frequencies`` float32, radians per position for each pair of dimensions that turns.

    ``zero_centred``: the family stores norm weights around 0 and adds 1 to them; ``fit`` finds out whether a checkpoint has
    done that already. ``mtp`` is the shape of a head for multi-token prediction that the family may bring.
    """

    vocab_size: int
    context: int
    hidden: int
    heads: HeadGeometry
    layers: tuple[LayerShape, ...]
    frequencies: np.ndarray
    norm_eps: float
    tied: bool
    zero_centred: bool = False
    mtp: MtpShape | None = None
    refused_adapters: Mapping[str, str] = field(factory=dict)

    def fit(self, specs: Mapping[str, TensorSpec]) -> DecoderBlueprint:
        """The same with the layouts that a checkpoint has. Raises ``ModelError`` for one that is of two kinds."""
        layers = tuple(layer.fit(specs, _layer(index)) for index, layer in enumerate(self.layers))
        mtp = self.mtp.fit(specs) if self.mtp is not None and any(name.startswith("mtp.") for name in specs) else None
        # Converters that move the convolution's channels also add 1 to the norms: one tells of the other.
        order = {layer.mixer.channels_first for layer in layers if isinstance(layer.mixer, DeltaNetShape)}
        if len(order) > 1:
            raise ModelError("some layers store conv1d.weight as [channels, 1, kernel] and some as [channels, kernel, 1]")
        return evolve(self, layers=layers, mtp=mtp, zero_centred=self.zero_centred and order != {False})

    def tensors(self) -> Mapping[str, tuple[int, ...]]:
        """Names and logical shapes of all tensors that are needed."""
        names: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (self.vocab_size, self.hidden)}
        for index, layer in enumerate(self.layers):
            names |= layer.tensors(_layer(index), self.hidden)
        names["model.norm.weight"] = (self.hidden,)
        if not self.tied:
            names["lm_head.weight"] = (self.vocab_size, self.hidden)
        return names if self.mtp is None else names | self.mtp.tensors()

    def ignores(self, name: str) -> bool:
        """Frequencies that older files carry, and the copy of the embedding that some tied files do."""
        return _HARMLESS.search(name) is not None or (self.tied and name == "lm_head.weight")

    def cache(self, dtype: mx.Dtype, context: int) -> CacheGeometry:
        """What a sequence keeps."""
        mixers = [layer.mixer for layer in self.layers]
        attending = sum(isinstance(mixer, AttentionShape) for mixer in mixers)
        recurrent = tuple(array for mixer in mixers if isinstance(mixer, DeltaNetShape) for array in mixer.state(dtype))
        return CacheGeometry(attending, 2 * self.heads.kv_heads, self.heads.head_dim, dtype, context, recurrent)

    def build(self, weights: WeightReader, target: Target) -> Decoder:
        """Read all weights."""
        kernels = choose_kernels(target, self.heads, self.frequencies)
        embedding = weights.embedding("model.embed_tokens.weight")
        layers, caches, recurrent = [], 0, 0
        for index, shape in enumerate(self.layers):
            layers.append(self._layer(weights, kernels, index, caches, recurrent))
            if isinstance(shape.mixer, AttentionShape):
                caches += 1
            else:
                recurrent += 2
        norm = weights.norm("model.norm.weight", self.norm_eps, zero_centred=self.zero_centred)
        head = embedding.as_output() if self.tied else weights.linear(["lm_head.weight"])
        mtp = None if self.mtp is None else self.mtp.build(weights, kernels, self.norm_eps, zero_centred=self.zero_centred)
        return Decoder(embedding, tuple(layers), norm, head, kernels, mtp)

    def _layer(self, weights: WeightReader, kernels: Kernels, index: int, cache: int, recurrent: int) -> DecoderLayer:
        prefix, shape, zero_centred = _layer(index), self.layers[index], self.zero_centred
        first = weights.norm(f"{prefix}input_layernorm.weight", self.norm_eps, zero_centred=zero_centred)
        if isinstance(shape.mixer, AttentionShape):
            mixer: GroupedAttention | GatedDeltaNet = shape.mixer.build(
                weights, kernels, prefix, cache, zero_centred=zero_centred
            )
        else:
            mixer = shape.mixer.build(weights, kernels, prefix, slice(recurrent, recurrent + 2))
        second = weights.norm(f"{prefix}post_attention_layernorm.weight", self.norm_eps, zero_centred=zero_centred)
        return DecoderLayer(first, mixer, second, shape.feed_forward.build(weights, kernels, prefix))


@frozen(eq=False)
class DecoderLayer:
    """One decoder layer over packed tokens [T, hidden]."""

    first_norm: RMSNorm
    mixer: GroupedAttention | GatedDeltaNet
    second_norm: RMSNorm
    feed_forward: FeedForward | MixtureOfExperts

    def __call__(self, x: mx.array, step: Step, rotate: Rotation) -> mx.array:
        """The residual stream after this layer."""
        x = x + self.mixer(self.first_norm(x), step, rotate)
        return x + self.feed_forward(self.second_norm(x), step)


class Decoder:
    """The whole network. ``mtp`` is the head for multi-token prediction, where the checkpoint has one."""

    def __init__(
        self,
        embedding: Embedding,
        layers: tuple[DecoderLayer, ...],
        norm: RMSNorm,
        head: Linear,
        kernels: Kernels,
        mtp: MtpHead | None = None,
    ) -> None:
        self._embedding = embedding
        self._layers = layers
        self._norm = norm
        self._head = head
        self._kernels = kernels
        self.mtp = mtp

    def hidden(self, step: Step) -> mx.array:
        """Run all layers: float32 [tokens, hidden size] before the last norm.

        The residual stream is float32 whatever the blocks compute in: every layer would round all that came before it.
        """
        rotate = self._kernels.rope.at(step.positions)
        x = self._embedding(step.tokens).astype(mx.float32)
        for layer in self._layers:
            x = layer(x, step, rotate)
        return x

    def logits(self, hidden: mx.array) -> mx.array:
        """Last norm and output projection: [rows, hidden size] -> float32 [rows, vocabulary]."""
        return self._head(self._norm(hidden)).astype(mx.float32)

    def draft(self, tokens: mx.array, hidden: mx.array) -> mx.array:
        """What the head for multi-token prediction expects after ``tokens``, given the network's view of the ones before.

        ``tokens`` int32 [T] of one sequence from its second token on, ``hidden`` [T, hidden size] before the last norm, of the
        tokens before each: -> float32 logits [T, vocabulary] of the tokens after. Raises ``ValueError`` without such a head.
        """
        if self.mtp is None:
            raise ValueError("this checkpoint has no head for multi-token prediction")
        count = tokens.shape[0]
        step = Step(tokens, mx.arange(count), (WholeSegment(count),), None)
        drafted = self.mtp(self._embedding(tokens), self._norm(hidden), step, self._kernels.rope.at(step.positions))
        return self._head(drafted).astype(mx.float32)


def _layer(index: int) -> str:
    return f"model.layers.{index}."
