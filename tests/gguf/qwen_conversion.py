"""Converts a model in Hugging Face notation into what a GGUF file holds, as llama.cpp's converter does.

Written from the converter's conventions, index by index, and shares nothing with the loader that undoes it.
"""

import json
import struct

import numpy as np

NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
    "input_layernorm.weight": "attn_norm.weight",
    "self_attn.q_proj.weight": "attn_q.weight",
    "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.v_proj.weight": "attn_v.weight",
    "self_attn.o_proj.weight": "attn_output.weight",
    "self_attn.q_proj.bias": "attn_q.bias",
    "self_attn.k_proj.bias": "attn_k.bias",
    "self_attn.v_proj.bias": "attn_v.bias",
    "self_attn.q_norm.weight": "attn_q_norm.weight",
    "self_attn.k_norm.weight": "attn_k_norm.weight",
    "mlp.gate_proj.weight": "ffn_gate.weight",
    "mlp.up_proj.weight": "ffn_up.weight",
    "mlp.down_proj.weight": "ffn_down.weight",
    "linear_attn.in_proj_qkv.weight": "attn_qkv.weight",
    "linear_attn.in_proj_z.weight": "attn_gate.weight",
    "linear_attn.in_proj_b.weight": "ssm_beta.weight",
    "linear_attn.in_proj_a.weight": "ssm_alpha.weight",
    "linear_attn.conv1d.weight": "ssm_conv1d.weight",
    "linear_attn.A_log": "ssm_a",
    "linear_attn.dt_bias": "ssm_dt.bias",
    "linear_attn.norm.weight": "ssm_norm.weight",
    "linear_attn.out_proj.weight": "ssm_out.weight",
    "mlp.gate.weight": "ffn_gate_inp.weight",
    "mlp.experts.gate_proj.weight": "ffn_gate_exps.weight",
    "mlp.experts.up_proj.weight": "ffn_up_exps.weight",
    "mlp.experts.down_proj": "ffn_down_exps.weight",
    "mlp.shared_expert_gate.weight": "ffn_gate_inp_shexp.weight",
    "mlp.shared_expert.gate_proj.weight": "ffn_gate_shexp.weight",
    "mlp.shared_expert.up_proj.weight": "ffn_up_shexp.weight",
    "mlp.shared_expert.down_proj.weight": "ffn_down_shexp.weight",
    "mtp.fc.weight": "nextn.eh_proj.weight",
    "mtp.pre_fc_norm_embedding.weight": "nextn.enorm.weight",
    "mtp.pre_fc_norm_hidden.weight": "nextn.hnorm.weight",
    "mtp.norm.weight": "nextn.shared_head_norm.weight",
}
ARCHITECTURES = {
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "qwen3_moe": "qwen3moe",
    "qwen3_5_text": "qwen35",
    "qwen3_5_moe_text": "qwen35moe",
}


def is_qwen35(config):
    return config["model_type"].startswith("qwen3_5")


def metadata(model):
    """The key-value pairs of the converter, for ``gguf_writer``."""
    config, name = model.config, ARCHITECTURES[model.config["model_type"]]
    rope = config.get("rope_parameters") or config
    # As the configuration says, whether or not the checkpoint has such a layer.
    extra = config.get("mtp_num_hidden_layers", 0)
    pairs = {
        "block_count": ("u32", config["num_hidden_layers"] + extra),
        "context_length": ("u32", config["max_position_embeddings"]),
        "embedding_length": ("u32", config["hidden_size"]),
        "attention.head_count": ("u32", config["num_attention_heads"]),
        "attention.head_count_kv": ("u32", config["num_key_value_heads"]),
        "attention.key_length": ("u32", config["head_dim"]),
        "attention.value_length": ("u32", config["head_dim"]),
        "attention.layer_norm_rms_epsilon": ("f32", config["rms_norm_eps"]),
        "rope.freq_base": ("f32", rope["rope_theta"]),
    }
    if "intermediate_size" in config:
        pairs["feed_forward_length"] = ("u32", config["intermediate_size"])
    if "num_experts" in config:
        pairs["expert_count"] = ("u32", config["num_experts"])
        pairs["expert_used_count"] = ("u32", config["num_experts_per_tok"])
        pairs["expert_feed_forward_length"] = ("u32", config["moe_intermediate_size"])
    if "shared_expert_intermediate_size" in config:
        pairs["expert_shared_feed_forward_length"] = ("u32", config["shared_expert_intermediate_size"])
    if is_qwen35(config):
        pairs["ssm.conv_kernel"] = ("u32", config["linear_conv_kernel_dim"])
        pairs["ssm.state_size"] = ("u32", config["linear_key_head_dim"])
        pairs["ssm.group_count"] = ("u32", config["linear_num_key_heads"])
        pairs["ssm.time_step_rank"] = ("u32", config["linear_num_value_heads"])
        pairs["ssm.inner_size"] = ("u32", config["linear_value_head_dim"] * config["linear_num_value_heads"])
        pairs["full_attention_interval"] = ("u32", config["full_attention_interval"])
        pairs["rope.dimension_count"] = ("u32", int(config["head_dim"] * rope["partial_rotary_factor"]))
        pairs["rope.dimension_sections"] = ("[i32]", [*rope["mrope_section"], 0])
    if extra > 0:
        pairs["nextn_predict_layers"] = ("u32", extra)
    keys = {f"{name}.{key}": value for key, value in pairs.items()}
    return {"general.architecture": ("str", name)} | keys | tokenizer_metadata(model)


def tokenizer_metadata(model):
    document = json.loads(model.tokenizer_json)
    texts = {number: text for text, number in document["model"]["vocab"].items()}
    types = dict.fromkeys(texts, 1)
    for added in document["added_tokens"]:
        texts[added["id"]] = added["content"]
        types[added["id"]] = 3 if added["special"] else 4
    count = model.config["vocab_size"]
    return {
        "tokenizer.ggml.model": ("str", "gpt2"),
        "tokenizer.ggml.pre": ("str", "qwen35"),
        "tokenizer.ggml.tokens": ("[str]", [texts.get(number, f"[PAD{number}]") for number in range(count)]),
        "tokenizer.ggml.token_type": ("[i32]", [types.get(number, 5) for number in range(count)]),
        "tokenizer.ggml.merges": ("[str]", [" ".join(merge) for merge in document["model"]["merges"]]),
        "tokenizer.ggml.eos_token_id": ("u32", 495),
        "tokenizer.ggml.padding_token_id": ("u32", 493),
        "tokenizer.ggml.add_bos_token": ("bool", False),
        "tokenizer.chat_template": ("str", model.chat_template),
    }


def tiled(key_heads, served, width):
    """For each place in the file the place in Hugging Face notation, of ``key_heads * served`` value heads of ``width``.

    There the heads that one key head serves stand together; in the file the first of every key head come first.
    """
    return [
        (key_head * served + number) * width + place
        for number in range(served)
        for key_head in range(key_heads)
        for place in range(width)
    ]


def reordered(name, tensor, config):
    """What happens to the value heads of one tensor of a linear-attention block."""
    key_heads, value_heads = config["linear_num_key_heads"], config["linear_num_value_heads"]
    served, width = value_heads // key_heads, config["linear_value_head_dim"]
    before = 2 * key_heads * config["linear_key_head_dim"]
    if "in_proj_qkv" in name or "conv1d" in name:
        return tensor[[*range(before), *(before + place for place in tiled(key_heads, served, width))]]
    if "in_proj_z" in name:
        return tensor[tiled(key_heads, served, width)]
    if "out_proj" in name:
        return tensor[:, tiled(key_heads, served, width)]
    if name.endswith("linear_attn.norm.weight"):
        return tensor
    return tensor[tiled(key_heads, served, 1)]


def stacked(tensors):
    """With single experts as stacks, and fused stacks of gate and up taken apart."""
    found = {name: tensor for name, tensor in tensors.items() if "mlp.experts." not in name}
    for prefix in sorted({name.partition("mlp.experts.")[0] for name in tensors if "mlp.experts." in name}):
        block = f"{prefix}mlp.experts."
        if f"{block}gate_up_proj" in tensors:
            both = tensors[f"{block}gate_up_proj"]
            half = both.shape[1] // 2
            gate, up, down = both[:, :half], both[:, half:], tensors[f"{block}down_proj"]
        else:
            count = sum(name.startswith(block) for name in tensors) // 3
            gate, up, down = (
                np.stack([tensors[f"{block}{number}.{part}_proj.weight"] for number in range(count)])
                for part in ("gate", "up", "down")
            )
        found |= {f"{block}gate_proj.weight": gate, f"{block}up_proj.weight": up, f"{block}down_proj": down}
    return found


def is_zero_centred(name):
    return "norm" in name and not name.endswith("linear_attn.norm.weight")


def converted(model):
    """Arrays in float32 by their names in the file."""
    config = model.config
    tensors = stacked(model.tensors_by_name)
    if is_qwen35(config):
        tensors = {name: transformed(name, tensor, config) for name, tensor in tensors.items()}
    return {file_name(name, config): np.ascontiguousarray(tensor) for name, tensor in tensors.items()}


def transformed(name, tensor, config):
    if "conv1d" in name:
        tensor = tensor.squeeze(1)
    if "linear_attn." in name:
        tensor = reordered(name, tensor, config)
    if name.endswith("A_log"):
        return -np.exp(tensor)
    return tensor + np.float32(1) if is_zero_centred(name) else tensor


def file_name(name, config):
    if name in NAMES:
        block = f"blk.{config['num_hidden_layers']}." if name.startswith("mtp.") else ""
        return block + NAMES[name]
    parts = name.split(".", 3)
    number = int(parts[2]) + (config["num_hidden_layers"] if parts[0] == "mtp" else 0)
    if parts[3] == "post_attention_layernorm.weight":
        return f"blk.{number}." + ("post_attention_norm.weight" if is_qwen35(config) else "ffn_norm.weight")
    return f"blk.{number}.{NAMES[parts[3]]}"


def stays_float32(name, tensor):
    return tensor.ndim == 1 or name.endswith(("_norm.weight", "ffn_gate_inp.weight", "ssm_conv1d.weight"))


def bfloat16(tensor):
    """Cut, which is exact for what was bfloat16 before."""
    return (tensor.view(np.uint32) >> 16).astype(np.uint16).tobytes()


def quotients(blocks, scales):
    """Blocks in units of their scales as the file holds them, 0 where a block has no scale."""
    units = scales.astype(np.float32)[:, None]
    return np.divide(blocks, units, out=np.zeros_like(blocks), where=units != 0)


def q8_0(tensor):
    blocks = tensor.reshape(-1, 32)
    scales = (np.abs(blocks).max(axis=1) / 127).astype(np.float16)
    quants = np.round(quotients(blocks, scales)).clip(-127, 127).astype(np.int8)
    return b"".join(struct.pack("<e", scale) + row.tobytes() for scale, row in zip(scales, quants, strict=True))


def nibbles(quants):
    quants = quants.clip(0, 15).astype(np.uint8)
    return quants[:, :16] | quants[:, 16:] << 4


def q4_0(tensor):
    blocks = tensor.reshape(-1, 32)
    scales = (np.abs(blocks).max(axis=1) / 7).astype(np.float16)
    packed = nibbles(np.round(quotients(blocks, scales)) + 8)
    return b"".join(struct.pack("<e", scale) + row.tobytes() for scale, row in zip(scales, packed, strict=True))


def q4_1(tensor):
    blocks = tensor.reshape(-1, 32)
    minima = blocks.min(axis=1).astype(np.float16)
    scales = ((blocks.max(axis=1) - minima.astype(np.float32)) / 15).astype(np.float16)
    packed = nibbles(np.round(quotients(blocks - minima[:, None].astype(np.float32), scales)))
    return b"".join(
        struct.pack("<ee", scale, minimum) + row.tobytes() for scale, minimum, row in zip(scales, minima, packed, strict=True)
    )


ENCODERS = {
    "F32": lambda tensor: tensor.tobytes(),
    "F16": lambda tensor: tensor.astype("<f2").tobytes(),
    "BF16": bfloat16,
    "Q8_0": q8_0,
    "Q4_0": q4_0,
    "Q4_1": q4_1,
}


def encoded(name, tensor, kind):
    """The type and bytes of one tensor in a file of mostly ``kind``, as the converter chooses."""
    if stays_float32(name, tensor):
        kind = "F32"
    elif kind.startswith("Q") and tensor.shape[-1] % 32:
        kind = "F16"
    return kind, tensor.shape, ENCODERS[kind](tensor)


def tensors(model, kind="F32"):
    """All tensors for ``gguf_writer``."""
    return {name: encoded(name, tensor, kind) for name, tensor in converted(model).items()}
