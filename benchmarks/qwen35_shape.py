"""A checkpoint of the shape of Qwen3.5-0.8B with seeded random weights, in bfloat16 as published ones are.

``python benchmarks/qwen35_shape.py FOLDER [--quick]`` writes ``FOLDER`` (1.5 GB; a few MB with ``--quick``, which has the same
structure and small sizes). Layout and names are those of the published checkpoints, without vision tower and MTP head. The
tokenizer has one token per byte, far fewer than the model's vocabulary. Nothing is learned: it is for speed and memory.
"""

from __future__ import annotations

import argparse
import json
import math
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import safetensors_file as st

from lattice_conformance.scripted_tokenizer import CONTROL_TOKENS, END_OF_TEXT_ID, IM_END_ID, tokenizer_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PREFIX = "model.language_model."
_BLOCK = 1 << 22
"""Elements that are made at the same time: 16 MB of float32."""

FULL: dict[str, Any] = {
    "num_hidden_layers": 24,
    "hidden_size": 1024,
    "intermediate_size": 3584,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 16,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "vocab_size": 248_320,
    "max_position_embeddings": 262_144,
}
QUICK = FULL | {
    "num_hidden_layers": 4,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_attention_heads": 4,
    "head_dim": 32,
    "linear_num_key_heads": 4,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 32,
    "vocab_size": 2048,
    "max_position_embeddings": 4096,
}


def configuration(sizes: dict[str, Any]) -> dict[str, Any]:
    """``config.json``, nested as published."""
    layers = range(1, sizes["num_hidden_layers"] + 1)
    text = {
        "model_type": "qwen3_5_text",
        **sizes,
        "layer_types": ["full_attention" if layer % 4 == 0 else "linear_attention" for layer in layers],
        "full_attention_interval": 4,
        "linear_conv_kernel_dim": 4,
        "attn_output_gate": True,
        "attention_bias": False,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "mamba_ssm_dtype": "float32",
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25},
        "eos_token_id": IM_END_ID,
        "tie_word_embeddings": True,
    }
    return {
        "architectures": ["Qwen3_5ForConditionalGeneration"],
        "model_type": "qwen3_5",
        "dtype": "bfloat16",
        "text_config": text,
        "tie_word_embeddings": True,
    }


def shapes(config: dict[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names without prefix, and shapes, of all tensors of the language model."""
    c = config["text_config"]
    hidden, inner = c["hidden_size"], c["intermediate_size"]
    yield "embed_tokens.weight", (c["vocab_size"], hidden)
    for number, kind in enumerate(c["layer_types"]):
        layer = f"layers.{number}."
        yield f"{layer}input_layernorm.weight", (hidden,)
        mixer = _attention(c) if kind == "full_attention" else _delta_net(c)
        yield from ((layer + name, shape) for name, shape in mixer.items())
        yield f"{layer}post_attention_layernorm.weight", (hidden,)
        yield from ((f"{layer}mlp.{name}_proj.weight", (inner, hidden)) for name in ("gate", "up"))
        yield f"{layer}mlp.down_proj.weight", (hidden, inner)
    yield "norm.weight", (hidden,)


def _attention(c: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Each head has query rows and gate rows."""
    queries, keys = (c[f"num_{kind}_heads"] * c["head_dim"] for kind in ("attention", "key_value"))
    hidden = c["hidden_size"]
    projections = {"q": (2 * queries, hidden), "k": (keys, hidden), "v": (keys, hidden), "o": (hidden, queries)}
    found: dict[str, tuple[int, ...]] = {f"self_attn.{name}_proj.weight": shape for name, shape in projections.items()}
    return found | {f"self_attn.{name}_norm.weight": (c["head_dim"],) for name in "qk"}


def _delta_net(c: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    keys, values = (c[f"linear_num_{kind}_heads"] * c[f"linear_{kind}_head_dim"] for kind in ("key", "value"))
    hidden, heads = c["hidden_size"], c["linear_num_value_heads"]
    mixed = 2 * keys + values
    found = {
        "in_proj_qkv.weight": (mixed, hidden),
        "in_proj_z.weight": (values, hidden),
        "in_proj_b.weight": (heads, hidden),
        "in_proj_a.weight": (heads, hidden),
        "conv1d.weight": (mixed, 1, c["linear_conv_kernel_dim"]),
        "A_log": (heads,),
        "dt_bias": (heads,),
        "norm.weight": (c["linear_value_head_dim"],),
        "out_proj.weight": (hidden, values),
    }
    return {f"linear_attn.{name}": shape for name, shape in found.items()}


def tensor(number: int, name: str, shape: tuple[int, ...], seed: int) -> st.Tensor:
    """One tensor; its numbers depend on its place and the seed alone."""
    wide = name.endswith(("A_log", "linear_attn.norm.weight"))
    return st.Tensor(PREFIX + name, "F32" if wide else "BF16", shape, partial(_blocks, (seed, number), name, shape, wide=wide))


def _blocks(seed: tuple[int, int], name: str, shape: tuple[int, ...], *, wide: bool) -> Iterable[np.ndarray]:
    """Numbers of such sizes that activations neither grow nor vanish over the layers."""
    random = np.random.default_rng(seed)
    left = math.prod(shape)
    while left:
        count = min(left, _BLOCK)
        left -= count
        block = random.standard_normal(count, dtype=np.float32)
        if name.endswith("A_log"):
            block = np.log(random.uniform(1, 16, count)).astype(np.float32)
        elif name.endswith("linear_attn.norm.weight"):
            block = 1 + 0.1 * block
        elif len(shape) == 1:
            block *= np.float32(0.1)
        else:
            block /= np.float32(math.sqrt(math.prod(shape[1:])))
        yield block.astype("<f4") if wide else st.bfloat16(block)


def write(folder: Path, *, quick: bool = False, seed: int = 0) -> None:
    """Make ``folder`` and write a complete model directory into it; weights are streamed."""
    config = configuration(QUICK if quick else FULL)
    folder.mkdir(parents=True)
    texts: dict[str, Any] = {
        "config.json": config,
        "generation_config.json": {"eos_token_id": [IM_END_ID, END_OF_TEXT_ID]},
        "tokenizer_config.json": {"eos_token": CONTROL_TOKENS[IM_END_ID], "tokenizer_class": "PreTrainedTokenizerFast"},
    }
    for name, document in texts.items():
        (folder / name).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    (folder / "tokenizer.json").write_bytes(tokenizer_json())
    tensors = [tensor(number, name, shape, seed) for number, (name, shape) in enumerate(shapes(config))]
    # A file under its own name is whole, also after an interruption.
    partial_file = folder / "model.safetensors.partial"
    st.write(partial_file, tensors)
    partial_file.rename(folder / "model.safetensors")


def main() -> None:
    """Read the command line and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="directory to make")
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    write(arguments.folder, quick=arguments.quick, seed=arguments.seed)
    print(arguments.folder)


if __name__ == "__main__":
    main()
