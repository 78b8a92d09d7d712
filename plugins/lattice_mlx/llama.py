"""The Llama architecture (Touvron et al., 2023, arXiv:2302.13971): Llama 2 and 3, SmolLM2 and their kin.

A pre-norm decoder with rotary positions, grouped queries and gated SiLU. Owns its configuration, tensor names and forward
pass; knows no states.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import mlx.core as mx
import numpy as np  # noqa: TC002  attrs reads the annotations
from attrs import frozen

from lattice_core.errors import ModelError
from lattice_mlx.config_fields import ConfigFields
from lattice_mlx.kernels import HeadGeometry, choose_kernels
from lattice_mlx.norm import RMSNorm
from lattice_mlx.rope_frequencies import rope_frequencies

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from lattice_mlx.embedding import Embedding
    from lattice_mlx.kernels import Kernels
    from lattice_mlx.linear import Linear
    from lattice_mlx.rope import Rotation
    from lattice_mlx.step import Step
    from lattice_mlx.target import Target
    from lattice_mlx.weights import WeightReader

_MAX_LAYERS, _MAX_HEADS, _MAX_WIDTH, _MAX_VOCABULARY, _MAX_CONTEXT = 1024, 1024, 1 << 20, 1 << 24, 1 << 30
_HARMLESS = re.compile(r"rotary_emb\.inv_freq$")


@frozen(eq=False)
class LlamaBlueprint:
    """A checked configuration. ``frequencies`` float32 [head_dim / 2]."""

    vocab_size: int
    context: int
    layers: int
    hidden_size: int
    intermediate_size: int
    geometry: HeadGeometry
    norm_eps: float
    frequencies: np.ndarray
    tied: bool
    attention_bias: bool
    mlp_bias: bool

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> LlamaBlueprint:
        """Read ``config.json``; raises ``ModelError`` naming the first field that cannot be honoured."""
        fields = ConfigFields(config)
        fields.choice("hidden_act", ("silu",), "silu")
        hidden = fields.integer("hidden_size", _MAX_WIDTH)
        geometry = _heads(fields, hidden)
        return cls(
            vocab_size=fields.integer("vocab_size", _MAX_VOCABULARY),
            context=fields.integer("max_position_embeddings", _MAX_CONTEXT),
            layers=fields.integer("num_hidden_layers", _MAX_LAYERS),
            hidden_size=hidden,
            intermediate_size=fields.integer("intermediate_size", _MAX_WIDTH),
            geometry=geometry,
            norm_eps=fields.number("rms_norm_eps"),
            frequencies=rope_frequencies(fields, geometry.head_dim),
            tied=fields.flag("tie_word_embeddings", default=False),
            attention_bias=fields.flag("attention_bias", default=False),
            mlp_bias=fields.flag("mlp_bias", default=False),
        )

    def tensors(self) -> Mapping[str, tuple[int, ...]]:
        """Names and logical shapes of all tensors that are needed."""
        hidden, inner = self.hidden_size, self.intermediate_size
        queries, keys = self.geometry.heads * self.geometry.head_dim, self.geometry.kv_heads * self.geometry.head_dim
        names: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (self.vocab_size, hidden)}
        attention = {
            "q_proj": (queries, hidden),
            "k_proj": (keys, hidden),
            "v_proj": (keys, hidden),
            "o_proj": (hidden, queries),
        }
        feed_forward = {"gate_proj": (inner, hidden), "up_proj": (inner, hidden), "down_proj": (hidden, inner)}
        for index in range(self.layers):
            layer = f"model.layers.{index}."
            names[layer + "input_layernorm.weight"] = (hidden,)
            names[layer + "post_attention_layernorm.weight"] = (hidden,)
            for block, shapes, bias in (
                ("self_attn", attention, self.attention_bias),
                ("mlp", feed_forward, self.mlp_bias),
            ):
                for name, shape in shapes.items():
                    names[f"{layer}{block}.{name}.weight"] = shape
                    if bias:
                        names[f"{layer}{block}.{name}.bias"] = shape[:1]
        names["model.norm.weight"] = (hidden,)
        if not self.tied:
            names["lm_head.weight"] = (self.vocab_size, hidden)
        return names

    def ignores(self, name: str) -> bool:
        """Frequencies that older files carry, and the copy of the embedding that some tied files do."""
        return _HARMLESS.search(name) is not None or (self.tied and name == "lm_head.weight")

    def build(self, weights: WeightReader, target: Target) -> Llama:
        """Read all weights."""
        kernels = choose_kernels(target, self.geometry, self.frequencies)
        embedding = weights.embedding("model.embed_tokens.weight")
        layers = tuple(LlamaLayer(self, weights, kernels, index) for index in range(self.layers))
        norm = RMSNorm(weights.vector("model.norm.weight"), self.norm_eps)
        head = embedding.as_output() if self.tied else weights.linear(["lm_head.weight"])
        return Llama(embedding, layers, norm, head, kernels)


def _heads(fields: ConfigFields, hidden: int) -> HeadGeometry:
    heads = fields.integer("num_attention_heads", _MAX_HEADS)
    kv_heads = fields.integer("num_key_value_heads", _MAX_HEADS, default=heads)
    if heads % kv_heads:
        fields.refuse("num_key_value_heads", f"expected a divisor of num_attention_heads, {heads}")
    if not fields.has("head_dim") and hidden % heads:
        fields.refuse("hidden_size", f"expected a multiple of num_attention_heads, {heads}, where head_dim is absent")
    head_dim = fields.integer("head_dim", _MAX_WIDTH, default=hidden // heads or None)
    if head_dim % 2:
        raise ModelError(f"config.head_dim is {head_dim}: rotary positions need an even number")
    return HeadGeometry(heads, kv_heads, head_dim)


class LlamaLayer:
    """One decoder layer over packed tokens [T, hidden]."""

    def __init__(self, blueprint: LlamaBlueprint, weights: WeightReader, kernels: Kernels, index: int) -> None:
        layer = f"model.layers.{index}."
        self._index = index
        self._geometry = blueprint.geometry
        self._kernels = kernels
        self._attention_norm = RMSNorm(weights.vector(layer + "input_layernorm.weight"), blueprint.norm_eps)
        self._qkv = _read(weights, layer + "self_attn.", ("q_proj", "k_proj", "v_proj"), bias=blueprint.attention_bias)
        self._out = _read(weights, layer + "self_attn.", ("o_proj",), bias=blueprint.attention_bias)
        self._mlp_norm = RMSNorm(weights.vector(layer + "post_attention_layernorm.weight"), blueprint.norm_eps)
        self._gate_up = _read(weights, layer + "mlp.", ("gate_proj", "up_proj"), bias=blueprint.mlp_bias)
        self._down = _read(weights, layer + "mlp.", ("down_proj",), bias=blueprint.mlp_bias)
        self._inner = blueprint.intermediate_size

    def __call__(self, x: mx.array, step: Step, rotate: Rotation) -> mx.array:
        """The residual stream after this layer."""
        x = x + self._out(self._attend(self._attention_norm(x), step, rotate))
        gate_up = self._gate_up(self._mlp_norm(x))
        return x + self._down(self._kernels.swiglu(gate_up[:, : self._inner], gate_up[:, self._inner :]))

    def _attend(self, x: mx.array, step: Step, rotate: Rotation) -> mx.array:
        heads, kv_heads, head_dim = self._geometry.heads, self._geometry.kv_heads, self._geometry.head_dim
        qkv = self._qkv(x).reshape(-1, heads + 2 * kv_heads, head_dim)
        # Queries and keys turn together; keys and values then travel as one array, written to the cache at once.
        turned = rotate(qkv[:, : heads + kv_heads])
        kv = mx.concatenate([turned[:, heads:], qkv[:, heads + kv_heads :]], axis=1)
        mixed = step.attend(self._kernels.attention, self._index, turned[:, :heads], kv)
        return mixed.reshape(-1, heads * head_dim)


class Llama:
    """The whole network."""

    def __init__(
        self,
        embedding: Embedding,
        layers: tuple[LlamaLayer, ...],
        norm: RMSNorm,
        head: Linear,
        kernels: Kernels,
    ) -> None:
        self._embedding = embedding
        self._layers = layers
        self._norm = norm
        self._head = head
        self._kernels = kernels

    def hidden(self, step: Step) -> mx.array:
        """Run all layers: [tokens, hidden size] before the last norm."""
        rotate = self._kernels.rope.at(step.positions)
        x = self._embedding(step.tokens)
        for layer in self._layers:
            x = layer(x, step, rotate)
        return x

    def logits(self, hidden: mx.array) -> mx.array:
        """Last norm and output projection: [rows, hidden size] -> float32 [rows, vocabulary]."""
        return self._head(self._norm(hidden)).astype(mx.float32)


def _read(weights: WeightReader, prefix: str, names: tuple[str, ...], *, bias: bool) -> Linear:
    biases = [f"{prefix}{name}.bias" for name in names] if bias else []
    return weights.linear([f"{prefix}{name}.weight" for name in names], biases)
