"""Models in Hugging Face notation that tests convert: those of ``tests/data``, and random ones of the same size.

A model is also a checkpoint, so that a backend can run it beside its conversion.
"""

import json
from pathlib import Path

import numpy as np

from lattice_core.types import TensorData, TensorSpec

DATA = Path(__file__).parents[1] / "data"
WIDTHS = {"F32": "<f4", "BF16": "<u2"}


class HfModel:
    """``config`` is flat, ``tensors`` are float32 by flat names, without those of a vision tower."""

    def __init__(self, config, tensors):
        self.config = config
        self.tensors_by_name = tensors
        directory = DATA / "tiny-qwen35-tied-f32"
        self.tokenizer_json = (directory / "tokenizer.json").read_bytes()
        self.tokenizer_config = json.loads((directory / "tokenizer_config.json").read_text())
        self.generation_config = {}
        self.chat_template = self.tokenizer_config["chat_template"]
        self.format = "arrays"
        self.nbytes = sum(tensor.nbytes for tensor in tensors.values())

    def tensors(self):
        return {name: TensorSpec(name, "F32", tensor.shape) for name, tensor in self.tensors_by_name.items()}

    def read(self, name):
        tensor = np.ascontiguousarray(self.tensors_by_name[name])
        return TensorData(TensorSpec(name, "F32", tensor.shape), memoryview(tensor).cast("B"))

    def close(self):
        pass


def widened(dtype, data):
    """Stored floats as float32, which holds them exactly."""
    stored = np.frombuffer(data, WIDTHS[dtype])
    return stored if dtype == "F32" else (stored.astype(np.uint32) << 16).view(np.float32)


def fixture(name):
    """A model of ``tests/data``. The format: a length of 8 bytes, a header in JSON, the tensors' bytes."""
    config = json.loads((DATA / name / "config.json").read_text())
    config = {**config.get("text_config", {}), **{key: config[key] for key in config if key != "model_type"}} | (
        {"model_type": config.get("text_config", config)["model_type"]}
    )
    raw = (DATA / name / "model.safetensors").read_bytes()
    start = 8 + int.from_bytes(raw[:8], "little")
    tensors = {}
    for stored, entry in json.loads(raw[8:start]).items():
        if stored == "__metadata__" or stored.startswith("model.visual."):
            continue
        first, last = entry["data_offsets"]
        flat = stored.replace("model.language_model.", "model.")
        tensors[flat] = widened(entry["dtype"], raw[start + first : start + last]).reshape(entry["shape"])
    return HfModel(config, tensors)


def references(name):
    with np.load(DATA / name / "reference.npz") as archive:
        return dict(archive)


SIZES = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 512,
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 4096,
    "rope_theta": 1e6,
    "eos_token_id": 495,
    "tie_word_embeddings": False,
}
HIDDEN, QUERIES, KEYS = 64, 64, 32


def attention():
    shapes = {"q_proj": (QUERIES, HIDDEN), "k_proj": (KEYS, HIDDEN), "v_proj": (KEYS, HIDDEN), "o_proj": (HIDDEN, QUERIES)}
    return {f"self_attn.{name}.weight": shape for name, shape in shapes.items()}


def random_model(config, layer, seed=3):
    """A model of two layers with the tensors ``layer`` (names and shapes) beside the usual ones."""
    random = np.random.default_rng(seed)
    norms = {f"{name}.weight": (HIDDEN,) for name in ("input_layernorm", "post_attention_layernorm")}
    shapes = {"model.embed_tokens.weight": (512, HIDDEN), "model.norm.weight": (HIDDEN,), "lm_head.weight": (512, HIDDEN)}
    for number in range(SIZES["num_hidden_layers"]):
        shapes |= {f"model.layers.{number}.{name}": shape for name, shape in (norms | attention() | layer).items()}
    tensors = {}
    for name, shape in shapes.items():
        scale = 0.3 if len(shape) == 1 else 1.5 / shape[-1] ** 0.5
        tensors[name] = (random.normal(size=shape) * scale + ("norm" in name)).astype(np.float32)
    return HfModel(SIZES | config, tensors)


def qwen2():
    biases = {f"self_attn.{part}_proj.bias": (rows,) for part, rows in (("q", QUERIES), ("k", KEYS), ("v", KEYS))}
    mlp = {"mlp.gate_proj.weight": (96, HIDDEN), "mlp.up_proj.weight": (96, HIDDEN), "mlp.down_proj.weight": (HIDDEN, 96)}
    config = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "intermediate_size": 96}
    return random_model(config, biases | mlp)


def qwen3moe():
    norms = {"self_attn.q_norm.weight": (16,), "self_attn.k_norm.weight": (16,)}
    experts = {"mlp.gate.weight": (5, HIDDEN), "mlp.experts.gate_up_proj": (5, 64, HIDDEN)}
    experts["mlp.experts.down_proj"] = (5, HIDDEN, 32)
    config = {
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "num_experts": 5,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "norm_topk_prob": True,
        "intermediate_size": 128,
    }
    return random_model(config, norms | experts)


def qwen35(value_heads=6, value_dim=32):
    """The tiny Qwen3.5 with other value heads: 6 are three for each key head, which no exchange of two numbers can hide."""
    model = fixture("tiny-qwen35-tied-f32")
    values, random = value_heads * value_dim, np.random.default_rng(5)
    shapes = {"in_proj_qkv.weight": (128 + values, HIDDEN), "conv1d.weight": (128 + values, 1, 4), "norm.weight": (value_dim,)}
    shapes |= {"in_proj_z.weight": (values, HIDDEN), "out_proj.weight": (HIDDEN, values), "dt_bias": (value_heads,)}
    shapes |= {f"in_proj_{part}.weight": (value_heads, HIDDEN) for part in "ab"} | {"A_log": (value_heads,)}
    tensors = dict(model.tensors_by_name)
    for layer in range(3):
        for name, shape in shapes.items():
            scale = 0.5 if len(shape) == 1 else 1.5 / shape[-1] ** 0.5
            tensors[f"model.layers.{layer}.linear_attn.{name}"] = (random.normal(size=shape) * scale).astype(np.float32)
    return HfModel(model.config | {"linear_num_value_heads": value_heads, "linear_value_head_dim": value_dim}, tensors)
