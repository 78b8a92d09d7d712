"""The multi-token prediction head of ``tiny-qwen35-nested-bf16``, computed by hand in numpy float64.

Owns ``mtp-reference.npz``. The head predicts token i + 2 from the main model's final-normed hidden state at i and the
embedding of token i + 1:

    x = fc(concat(norm_e(embedding(token i + 1)), norm_h(hidden i)))
    x = x + attention(input_layernorm(x));  x = x + mlp(post_attention_layernorm(x))
    logits = lm_head(norm(x))

Every norm is x_hat * (1 + weight). The layer is the full-attention layer of Qwen3.5: rows of ``q_proj`` are, per head,
the query and then its gate; queries and keys are normed per head and then rotated (half-split, the first quarter of
the dimensions); causal attention over the entries before and the entry itself; sigmoid(gate) before ``o_proj``. Entry
i has RoPE position i; rotations depend on distances only, so i + 1 for every entry gives the same logits. The head
shares the main model's embedding and, tied to it, its output matrix.

Keys: ``input_ids`` int32 [36] (token i + 1), ``positions`` int32 [36] (i), ``fc_output`` float32 [36, 64] (x before
the layer), ``hidden`` float32 [36, 64] (norm(x), what a second step would take for the hidden state), ``logits``
float32 [36, 512]. The hidden states come from ``hidden[-1]`` of the fixture's ``reference.npz``.

Needs numpy. Usage: ``make_mtp_reference.py [OUT.npz]``. ``--check`` also compares the layer with the decoder layer of
transformers (needs torch and transformers).
"""

import json
import struct
import sys
from pathlib import Path

import numpy as np

DATA = Path(__file__).resolve().parent
FIXTURE = DATA / "tiny-qwen35-nested-bf16"
PREFIX = "mtp.layers.0."


def read_tensors(file: Path) -> dict[str, np.ndarray]:
    """Every BF16 or F32 tensor of a safetensors file as float64."""
    data = file.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    tensors = {}
    for name, entry in json.loads(data[8 : 8 + length]).items():
        if name == "__metadata__":
            continue
        start, end = (8 + length + offset for offset in entry["data_offsets"])
        if entry["dtype"] == "BF16":  # the upper half of a float32
            values = (np.frombuffer(data[start:end], "<u2").astype(np.uint32) << 16).view(np.float32)
        else:
            values = np.frombuffer(data[start:end], {"F32": "<f4"}[entry["dtype"]])
        tensors[name] = values.reshape(entry["shape"]).astype(np.float64)
    return tensors


def rms_norm(x: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    """x / sqrt(mean(x^2) + eps) * (1 + weight) over the last axis (Zhang and Sennrich 2019, weight centred on 0)."""
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * (1 + weight)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def softmax(x: np.ndarray) -> np.ndarray:
    weights = np.exp(x - x.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def rotate(x: np.ndarray, positions: np.ndarray, rotary: int, theta: float) -> np.ndarray:
    """RoPE on the first ``rotary`` dimensions of x [tokens, heads, head_dim]: pairs (j, j + rotary / 2), Su et al. 2021."""
    half = rotary // 2
    angles = positions[:, None, None] * theta ** (-np.arange(half) * 2.0 / rotary)
    first, second, rest = x[..., :half], x[..., half:rotary], x[..., rotary:]
    turned = (first * np.cos(angles) - second * np.sin(angles), second * np.cos(angles) + first * np.sin(angles))
    return np.concatenate([*turned, rest], axis=-1)


def attention(x: np.ndarray, w: dict[str, np.ndarray], config: dict, positions: np.ndarray) -> np.ndarray:
    """Gated grouped-query attention of x [tokens, hidden size] over itself, causal."""
    tokens, heads, groups, size = len(x), config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]
    rope = config["rope_parameters"]
    rotary, theta, eps = int(size * rope["partial_rotary_factor"]), rope["rope_theta"], config["rms_norm_eps"]
    rows = (x @ w["q_proj.weight"].T).reshape(tokens, heads, 2, size)  # per head: query rows, then gate rows
    query, gate = rows[:, :, 0], rows[:, :, 1]
    key = (x @ w["k_proj.weight"].T).reshape(tokens, groups, size)
    value = (x @ w["v_proj.weight"].T).reshape(tokens, groups, size)
    query = rotate(rms_norm(query, w["q_norm.weight"], eps), positions, rotary, theta)
    key = rotate(rms_norm(key, w["k_norm.weight"], eps), positions, rotary, theta)
    out = np.empty_like(query)
    for head in range(heads):
        group = head // (heads // groups)
        scores = query[:, head] @ key[:, group].T / np.sqrt(size)
        scores[np.triu_indices(tokens, 1)] = -np.inf
        out[:, head] = softmax(scores) @ value[:, group]
    return (out * sigmoid(gate)).reshape(tokens, heads * size) @ w["o_proj.weight"].T


def mlp(x: np.ndarray, w: dict[str, np.ndarray]) -> np.ndarray:
    """SwiGLU (Shazeer 2020)."""
    gate = x @ w["gate_proj.weight"].T
    return (gate * sigmoid(gate) * (x @ w["up_proj.weight"].T)) @ w["down_proj.weight"].T


def below(tensors: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def layer(x: np.ndarray, w: dict[str, np.ndarray], config: dict, positions: np.ndarray) -> np.ndarray:
    """One full-attention decoder layer."""
    eps = config["rms_norm_eps"]
    x = x + attention(rms_norm(x, w["input_layernorm.weight"], eps), below(w, "self_attn."), config, positions)
    return x + mlp(rms_norm(x, w["post_attention_layernorm.weight"], eps), below(w, "mlp."))


def compare_with_transformers(x: np.ndarray, w: dict[str, np.ndarray], config: dict, positions: np.ndarray) -> float:
    """Largest difference of ``layer`` to the same layer of transformers in float64 (its norms and softmax use float32)."""
    import torch  # noqa: PLC0415 - only for the check
    from transformers.models.qwen3_5 import modeling_qwen3_5 as qwen  # noqa: PLC0415 - only for the check

    text = qwen.Qwen3_5TextConfig(**config, attn_implementation="eager")
    module = qwen.Qwen3_5DecoderLayer(text, layer_idx=config["layer_types"].index("full_attention")).double().eval()
    module.load_state_dict({name: torch.from_numpy(value) for name, value in w.items()})
    states, ids = torch.from_numpy(x)[None], torch.from_numpy(positions)[None]
    mask = torch.full((len(x), len(x)), float("-inf"), dtype=torch.float64).triu(1)[None, None]
    with torch.no_grad():
        rotations = qwen.Qwen3_5TextRotaryEmbedding(text)(states, ids[None].expand(3, -1, -1))
        out = module(states, position_embeddings=rotations, attention_mask=mask)
    return float(np.abs((out[0] if isinstance(out, tuple) else out).squeeze(0).numpy() - layer(x, w, config, positions)).max())


def main() -> None:
    """Write the file and, if asked, check the layer."""
    check = "--check" in sys.argv[1:]
    names = [argument for argument in sys.argv[1:] if argument != "--check"]
    config = json.loads((FIXTURE / "config.json").read_text())["text_config"]
    tensors = read_tensors(FIXTURE / "model.safetensors")
    reference = np.load(FIXTURE / "reference.npz")
    eps, embedding = config["rms_norm_eps"], tensors["model.language_model.embed_tokens.weight"]

    ids = reference["prompt_ids"][1:]
    positions = np.arange(len(ids))
    hidden = reference["hidden"][-1, :-1].astype(np.float64)
    normed_embedding = rms_norm(embedding[ids], tensors["mtp.pre_fc_norm_embedding.weight"], eps)
    normed_hidden = rms_norm(hidden, tensors["mtp.pre_fc_norm_hidden.weight"], eps)
    x = np.concatenate([normed_embedding, normed_hidden], axis=-1) @ tensors["mtp.fc.weight"].T

    weights = below(tensors, PREFIX)
    if check:
        print(f"layer against transformers: {compare_with_transformers(x, weights, config, positions):.1e}")
        later = layer(x, weights, config, positions + 1)
        print(f"every position one later: {np.abs(later - layer(x, weights, config, positions)).max():.1e}")
    out = rms_norm(layer(x, weights, config, positions), tensors["mtp.norm.weight"], eps)
    logits = out @ embedding.T
    np.savez_compressed(
        Path(names[0]) if names else DATA / "mtp-reference.npz",
        input_ids=ids.astype(np.int32),
        positions=positions.astype(np.int32),
        fc_output=x.astype(np.float32),
        hidden=out.astype(np.float32),
        logits=logits.astype(np.float32),
    )
    print(f"logits: deviation {logits.std():.2f}, {len(set(logits.argmax(-1).tolist()))} different best tokens")


if __name__ == "__main__":
    main()
