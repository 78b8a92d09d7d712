"""The configuration of a GGUF model in Hugging Face notation.

Owns Hugging Face's names for what ``sizes`` found. RoPE is added by ``rope``. Must not know tensors' bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection

    from lattice_gguf.architectures import Architecture
    from lattice_gguf.metadata import Metadata
    from lattice_gguf.sizes import DeltaNetSizes, ExpertSizes, Sizes


def read_config(metadata: Metadata, architecture: Architecture, sizes: Sizes, names: Collection[str]) -> dict[str, Any]:
    """``config.json`` of the model without RoPE; ``names`` are the tensors of the file."""
    prefix = architecture.name
    if not metadata.flag(f"{prefix}.attention.causal", default=True):
        metadata.fail(f"{prefix}.attention.causal is false: attention to later tokens is not supported")
    config = {
        "architectures": [architecture.class_name],
        "model_type": architecture.model_type,
        "hidden_act": "silu",
        "hidden_size": sizes.hidden,
        "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads,
        "num_key_value_heads": sizes.kv_heads,
        "head_dim": sizes.head_dim,
        "rms_norm_eps": metadata.number(f"{prefix}.attention.layer_norm_rms_epsilon"),
        "max_position_embeddings": metadata.integer(f"{prefix}.context_length"),
        "vocab_size": sizes.vocabulary,
        "tie_word_embeddings": "output.weight" not in names,
        "attention_bias": "blk.0.attn_q.bias" in names,
        "mlp_bias": "blk.0.ffn_gate.bias" in names,
    }
    if sizes.experts is None:
        config["intermediate_size"] = sizes.inner
    else:
        config |= _experts(sizes.experts)
    if sizes.delta_net is not None:
        config |= _delta_net(sizes.delta_net)
        kinds = ("full_attention", "linear_attention")
        config["layer_types"] = [kinds[recurrent] for recurrent in sizes.recurrent_layers]
        config["mtp_num_hidden_layers"] = int(sizes.prediction_head)
    return config


def _experts(experts: ExpertSizes) -> dict[str, Any]:
    """All layers have experts, and their shares sum to 1, as ``build_moe_ffn`` is called in ``src/models/qwen3*moe.cpp``."""
    found = {
        "num_experts": experts.experts,
        "num_experts_per_tok": experts.chosen,
        "moe_intermediate_size": experts.inner,
        "norm_topk_prob": True,
    }
    return found | ({"shared_expert_intermediate_size": experts.shared} if experts.shared else {})


def _delta_net(net: DeltaNetSizes) -> dict[str, Any]:
    return {
        "linear_num_key_heads": net.key_heads,
        "linear_num_value_heads": net.value_heads,
        "linear_key_head_dim": net.key_dim,
        "linear_value_head_dim": net.value_dim,
        "linear_conv_kernel_dim": net.kernel,
    }
