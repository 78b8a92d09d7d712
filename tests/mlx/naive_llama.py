"""Llama in float64 numpy, one sequence at a time and without caches: what the backend's forward pass is compared with.

Written from the papers' formulas, shares nothing with the backend. ``random_checkpoint`` makes models of any shape.
"""

import json
import math
from pathlib import Path

import numpy as np

from lattice_core.types import TensorData, TensorSpec

DATA = Path(__file__).parents[1] / "data"


class ArrayCheckpoint:
    """A checkpoint of float32 arrays in memory."""

    def __init__(self, config, arrays):
        self.config, self.arrays = config, arrays
        self.generation_config, self.tokenizer_config = {}, {}
        self.tokenizer_json = json.dumps({"added_tokens": []}).encode()
        self.chat_template, self.format = None, "arrays"

    @property
    def nbytes(self):
        return sum(array.nbytes for array in self.arrays.values())

    def tensors(self):
        return {name: TensorSpec(name, "F32", array.shape) for name, array in self.arrays.items()}

    def read(self, name):
        array = np.ascontiguousarray(self.arrays[name])
        return TensorData(TensorSpec(name, "F32", array.shape), memoryview(array).cast("B"))

    def close(self):
        pass


def random_checkpoint(seed=0, **config):
    config = {
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 96,
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": 2048,
        **config,
    }
    rng = np.random.default_rng(seed)
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    head_dim = config.get("head_dim") or hidden // config["num_attention_heads"]
    queries, keys = (config[f"num_{kind}_heads"] * head_dim for kind in ("attention", "key_value"))
    arrays = {"model.embed_tokens.weight": (config["vocab_size"], hidden), "model.norm.weight": (hidden,)}
    if not config.get("tie_word_embeddings"):
        arrays["lm_head.weight"] = (config["vocab_size"], hidden)
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            arrays[f"{prefix}{norm}.weight"] = (hidden,)
        attention = {"q": (queries, hidden), "k": (keys, hidden), "v": (keys, hidden), "o": (hidden, queries)}
        for block, bias, shapes in (
            ("self_attn", "attention_bias", attention),
            ("mlp", "mlp_bias", {"gate": (inner, hidden), "up": (inner, hidden), "down": (hidden, inner)}),
        ):
            for name, shape in shapes.items():
                arrays[f"{prefix}{block}.{name}_proj.weight"] = shape
                if config.get(bias):
                    arrays[f"{prefix}{block}.{name}_proj.bias"] = shape[:1]
    made = {}
    for name, shape in arrays.items():
        scale = 1.0 if len(shape) == 1 else 2.0 / math.sqrt(shape[1])
        made[name] = ((rng.normal(size=shape) * scale) + ("norm" in name)).astype(np.float32)
    return ArrayCheckpoint(config, made)


def float_tensors(checkpoint):
    """All tensors of a checkpoint as float64, packed ones expanded."""
    return {name: _expanded(checkpoint.read(name)) for name in checkpoint.tensors()}


def frequencies(config, head_dim):
    scaling = config.get("rope_parameters") or config.get("rope_scaling") or {}
    theta = scaling.get("rope_theta") or config.get("rope_theta") or 10000.0
    found = []
    for pair in range(head_dim // 2):
        frequency = theta ** (-2 * pair / head_dim) / (config.get("rope_freqs") or [1.0] * head_dim)[pair]
        kind = scaling.get("rope_type") or scaling.get("type") or "default"
        if kind == "linear":
            frequency /= scaling["factor"]
        elif kind == "llama3":
            wavelength = 2 * math.pi / frequency
            context, low, high = (
                scaling[key] for key in ("original_max_position_embeddings", "low_freq_factor", "high_freq_factor")
            )
            if wavelength > context / low:
                frequency /= scaling["factor"]
            elif wavelength > context / high:
                smooth = (context / wavelength - low) / (high - low)
                frequency = (1 - smooth) * frequency / scaling["factor"] + smooth * frequency
        found.append(frequency)
    return np.array(found)


class NaiveLlama:
    def __init__(self, checkpoint):
        self.config = checkpoint.config
        self.w = float_tensors(checkpoint)

    def logits(self, ids):
        """[tokens, vocabulary] for a whole sequence."""
        c, w = self.config, self.w
        heads = c["num_attention_heads"]
        kv_heads = c.get("num_key_value_heads") or heads
        head_dim = c.get("head_dim") or c["hidden_size"] // heads
        angles = np.arange(len(ids))[:, None] * frequencies(c, head_dim)
        x = w["model.embed_tokens.weight"][list(ids)]
        for layer in range(c["num_hidden_layers"]):
            prefix = f"model.layers.{layer}."
            h = self._norm(x, prefix + "input_layernorm")
            q, k, v = (self._linear(h, f"{prefix}self_attn.{name}_proj") for name in "qkv")
            mixed = []
            for head in range(heads):
                kv = head // (heads // kv_heads)
                query = _rotated(q[:, head * head_dim : (head + 1) * head_dim], angles)
                key = _rotated(k[:, kv * head_dim : (kv + 1) * head_dim], angles)
                scores = query @ key.T / math.sqrt(head_dim)
                scores[np.triu_indices(len(ids), 1)] = -np.inf
                weights = np.exp(scores - scores.max(axis=1, keepdims=True))
                weights /= weights.sum(axis=1, keepdims=True)
                mixed.append(weights @ v[:, kv * head_dim : (kv + 1) * head_dim])
            x = x + self._linear(np.concatenate(mixed, axis=1), f"{prefix}self_attn.o_proj")
            h = self._norm(x, prefix + "post_attention_layernorm")
            gate = self._linear(h, f"{prefix}mlp.gate_proj")
            gated = gate / (1 + np.exp(-gate)) * self._linear(h, f"{prefix}mlp.up_proj")
            x = x + self._linear(gated, f"{prefix}mlp.down_proj")
        head = w["model.embed_tokens.weight" if c.get("tie_word_embeddings") else "lm_head.weight"]
        return self._norm(x, "model.norm") @ head.T

    def _norm(self, x, name):
        return x / np.sqrt((x * x).mean(axis=1, keepdims=True) + self.config["rms_norm_eps"]) * self.w[name + ".weight"]

    def _linear(self, x, name):
        return x @ self.w[name + ".weight"].T + self.w.get(name + ".bias", 0.0)


def _rotated(x, angles):
    first, second = np.split(x, 2, axis=1)
    cos, sin = np.cos(angles), np.sin(angles)
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=1)


def _expanded(tensor):
    spec, scheme = tensor.spec, tensor.spec.quantization
    if scheme is None:
        return _floats(tensor.data, spec.dtype).reshape(spec.shape)
    words = np.frombuffer(tensor.data, "<u4")
    per_word = 32 // scheme.bits
    shifts = np.arange(per_word, dtype=np.uint32) * scheme.bits
    values = ((words[:, None] >> shifts) & ((1 << scheme.bits) - 1)).reshape(-1, scheme.group_size)
    scales, biases = (_floats(part, scheme.scale_dtype)[:, None] for part in (tensor.scales, tensor.biases))
    return (values * scales + biases).reshape(spec.shape)


def _floats(data, dtype):
    if dtype == "BF16":
        return (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return np.frombuffer(data, {"F32": "<f4", "F16": "<f2"}[dtype]).astype(np.float64)
