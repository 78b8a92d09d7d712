"""The Llama architecture (Touvron et al., 2023, arXiv:2302.13971): Llama 2 and 3, SmolLM2 and their kin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lattice_mlx.config_fields import ConfigFields
from lattice_mlx.decoder import DecoderBlueprint, LayerShape
from lattice_mlx.dimensions import MAX_CONTEXT, MAX_LAYERS, MAX_VOCABULARY, MAX_WIDTH, read_heads
from lattice_mlx.feed_forward import FeedForwardShape
from lattice_mlx.grouped_attention import AttentionShape
from lattice_mlx.rope_frequencies import rope_frequencies

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


def read_llama(config: Mapping[str, Any]) -> DecoderBlueprint:
    """Read ``config.json``; raises ``ModelError`` naming the first field that cannot be honoured."""
    fields = ConfigFields(config)
    fields.choice("hidden_act", ("silu",), "silu")
    hidden = fields.integer("hidden_size", MAX_WIDTH)
    heads = read_heads(fields, hidden)
    bias = fields.flag("attention_bias", default=False)
    layer = LayerShape(
        AttentionShape(hidden, heads, bias=bias, out_bias=bias),
        FeedForwardShape(hidden, fields.integer("intermediate_size", MAX_WIDTH), bias=fields.flag("mlp_bias", default=False)),
    )
    return DecoderBlueprint(
        vocab_size=fields.integer("vocab_size", MAX_VOCABULARY),
        context=fields.integer("max_position_embeddings", MAX_CONTEXT),
        hidden=hidden,
        heads=heads,
        layers=(layer,) * fields.integer("num_hidden_layers", MAX_LAYERS),
        frequencies=rope_frequencies(fields, heads.head_dim),
        norm_eps=fields.number("rms_norm_eps"),
        tied=fields.flag("tie_word_embeddings", default=False),
    )
