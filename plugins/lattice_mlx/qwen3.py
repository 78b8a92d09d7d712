"""The Qwen3 architecture (arXiv:2505.09388), dense and with experts: Llama's blocks, with normalised queries and keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lattice_mlx.config_fields import ConfigFields
from lattice_mlx.decoder import DecoderBlueprint, LayerShape
from lattice_mlx.dimensions import (
    MAX_CONTEXT,
    MAX_EXPERTS,
    MAX_LAYERS,
    MAX_VOCABULARY,
    MAX_WIDTH,
    read_heads,
    refuse_sliding_window,
)
from lattice_mlx.feed_forward import FeedForwardShape
from lattice_mlx.grouped_attention import AttentionShape
from lattice_mlx.mixture_of_experts import REFUSED_ADAPTERS, MixtureShape
from lattice_mlx.rope_frequencies import rope_frequencies

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    FeedForwards = Callable[[ConfigFields, int, int], FeedForwardShape | MixtureShape]

_HEAD_DIM = 128


def read_qwen3(config: Mapping[str, Any]) -> DecoderBlueprint:
    """Read ``config.json`` of a dense model; raises ``ModelError`` naming the first field that cannot be honoured."""
    return _read(ConfigFields(config), _dense)


def read_qwen3_moe(config: Mapping[str, Any]) -> DecoderBlueprint:
    """As ``read_qwen3``, for a model with experts in all layers, or in those that the configuration names."""
    return _read(ConfigFields(config), _sparse)


def _read(fields: ConfigFields, feed_forward: FeedForwards) -> DecoderBlueprint:
    fields.choice("hidden_act", ("silu",), "silu")
    refuse_sliding_window(fields)
    hidden = fields.integer("hidden_size", MAX_WIDTH)
    heads = read_heads(fields, hidden, _HEAD_DIM)
    bias, eps = fields.flag("attention_bias", default=False), fields.number("rms_norm_eps", 1e-6)
    attention = AttentionShape(hidden, heads, bias=bias, out_bias=bias, norm_eps=eps)
    layers = range(fields.integer("num_hidden_layers", MAX_LAYERS))
    return DecoderBlueprint(
        vocab_size=fields.integer("vocab_size", MAX_VOCABULARY),
        context=fields.integer("max_position_embeddings", MAX_CONTEXT),
        hidden=hidden,
        heads=heads,
        layers=tuple(LayerShape(attention, feed_forward(fields, hidden, index)) for index in layers),
        frequencies=rope_frequencies(fields, heads.head_dim),
        norm_eps=eps,
        tied=fields.flag("tie_word_embeddings", default=False),
        refused_adapters=REFUSED_ADAPTERS,
    )


def _dense(fields: ConfigFields, hidden: int, index: int) -> FeedForwardShape:
    del index
    return FeedForwardShape(hidden, fields.integer("intermediate_size", MAX_WIDTH))


def _sparse(fields: ConfigFields, hidden: int, index: int) -> FeedForwardShape | MixtureShape:
    dense = fields.values.get("mlp_only_layers") or ()
    if index in dense or (index + 1) % fields.integer("decoder_sparse_step", MAX_LAYERS, default=1):
        return _dense(fields, hidden, index)
    experts = fields.integer("num_experts", MAX_EXPERTS)
    return MixtureShape(
        hidden,
        experts,
        fields.integer("num_experts_per_tok", experts),
        fields.integer("moe_intermediate_size", MAX_WIDTH),
        shared=0,
        renormalise=fields.flag("norm_topk_prob", default=False),
    )
