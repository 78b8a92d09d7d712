"""The Qwen3.5 architecture, dense and with experts: Gated DeltaNet layers with a gated-attention layer after every few of them.

Norm weights are stored around 0 and applied as ``1 + w``, save the one inside Gated DeltaNet. Source of fields and tensor
names: the configuration and model classes ``Qwen3_5`` and ``Qwen3_5Moe`` of transformers 5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lattice_core.errors import ModelError
from lattice_mlx.config_fields import ConfigFields
from lattice_mlx.decoder import DecoderBlueprint, LayerShape
from lattice_mlx.dimensions import (
    MAX_CONTEXT,
    MAX_EXPERTS,
    MAX_HEAD_DIM,
    MAX_HEADS,
    MAX_KERNEL,
    MAX_LAYERS,
    MAX_RECURRENT_STATE,
    MAX_VOCABULARY,
    MAX_WIDTH,
    read_heads,
)
from lattice_mlx.feed_forward import FeedForwardShape
from lattice_mlx.gated_delta_net import DeltaNetShape
from lattice_mlx.grouped_attention import AttentionShape
from lattice_mlx.mixture_of_experts import REFUSED_ADAPTERS, MixtureShape
from lattice_mlx.mtp_head import MtpShape
from lattice_mlx.rope_frequencies import rope_frequencies

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_HEAD_DIM, _ROTARY, _INTERVAL, _KERNEL = 256, 0.25, 4, 4
_LINEAR, _FULL = "linear_attention", "full_attention"


def read_qwen3_5(config: Mapping[str, Any]) -> DecoderBlueprint:
    """Read a dense model's flat configuration; raises ``ModelError`` naming the first field that cannot be honoured."""
    fields = ConfigFields(config)
    return _read(fields, FeedForwardShape(_hidden(fields), fields.integer("intermediate_size", MAX_WIDTH)))


def read_qwen3_5_moe(config: Mapping[str, Any]) -> DecoderBlueprint:
    """As ``read_qwen3_5``, for a model with experts."""
    fields = ConfigFields(config)
    experts = fields.integer("num_experts", MAX_EXPERTS)
    mixture = MixtureShape(
        _hidden(fields),
        experts,
        fields.integer("num_experts_per_tok", experts),
        fields.integer("moe_intermediate_size", MAX_WIDTH),
        shared=fields.integer("shared_expert_intermediate_size", MAX_WIDTH),
        renormalise=True,
    )
    return _read(fields, mixture)


def _hidden(fields: ConfigFields) -> int:
    return fields.integer("hidden_size", MAX_WIDTH)


def _read(fields: ConfigFields, feed_forward: FeedForwardShape | MixtureShape) -> DecoderBlueprint:
    fields.choice("hidden_act", ("silu",), "silu")
    hidden, eps = _hidden(fields), fields.number("rms_norm_eps", 1e-6)
    heads = read_heads(fields, hidden, _HEAD_DIM)
    bias = fields.flag("attention_bias", default=False)
    attention = AttentionShape(hidden, heads, bias=bias, out_bias=bias, gated=True, norm_eps=eps)
    kinds = _kinds(fields, fields.integer("num_hidden_layers", MAX_LAYERS))
    mixers: dict[str, AttentionShape | DeltaNetShape] = {_FULL: attention}
    if _LINEAR in kinds:
        mixers[_LINEAR] = _delta_net(fields, hidden, eps)
    return DecoderBlueprint(
        vocab_size=fields.integer("vocab_size", MAX_VOCABULARY),
        context=fields.integer("max_position_embeddings", MAX_CONTEXT),
        hidden=hidden,
        heads=heads,
        layers=tuple(LayerShape(mixers[kind], feed_forward) for kind in kinds),
        frequencies=rope_frequencies(fields, heads.head_dim, _ROTARY),
        norm_eps=eps,
        tied=fields.flag("tie_word_embeddings", default=False),
        zero_centred=True,
        mtp=MtpShape(hidden, attention, feed_forward),
        refused_adapters=REFUSED_ADAPTERS,
    )


def _kinds(fields: ConfigFields, layers: int) -> tuple[str, ...]:
    """The kind of each layer: as listed, else full attention at every ``full_attention_interval``-th."""
    listed = fields.values.get("layer_types")
    if listed is None:
        interval = fields.integer("full_attention_interval", MAX_LAYERS, default=_INTERVAL)
        return tuple(_LINEAR if (index + 1) % interval else _FULL for index in range(layers))
    if not isinstance(listed, list | tuple) or len(listed) != layers or any(kind not in (_LINEAR, _FULL) for kind in listed):
        fields.refuse("layer_types", f"expected a list of {layers} times {_LINEAR} or {_FULL}")
    return tuple(listed)


def _delta_net(fields: ConfigFields, hidden: int, eps: float) -> DeltaNetShape:
    key_heads = fields.integer("linear_num_key_heads", MAX_HEADS)
    value_heads = fields.integer("linear_num_value_heads", MAX_HEADS)
    if value_heads % key_heads:
        fields.refuse("linear_num_value_heads", f"expected a multiple of linear_num_key_heads, {key_heads}")
    key_dim = fields.integer("linear_key_head_dim", MAX_HEAD_DIM)
    value_dim = fields.integer("linear_value_head_dim", MAX_HEAD_DIM)
    if value_heads * key_dim * value_dim > MAX_RECURRENT_STATE:
        raise ModelError(
            f"config: a recurrent state of {value_heads} heads of {key_dim} x {value_dim} is larger than {MAX_RECURRENT_STATE}"
        )
    kernel = fields.integer("linear_conv_kernel_dim", MAX_KERNEL, default=_KERNEL)
    return DeltaNetShape(hidden, key_heads, value_heads, key_dim, value_dim, kernel, eps)
