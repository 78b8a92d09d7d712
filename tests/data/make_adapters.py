"""Low-rank adapters of the tiny models, written by peft and by mlx-lm, and what the merged models compute.

Owns the files below ``adapters/``: per adapter the two files its library saves and ``merged.npz`` with ``prompt_ids``
[37], ``logits`` float32 [37, 512], ``greedy_ids`` [16] and ``greedy_margin`` [16] (gap between the two best logits of
each step) of the model whose weights hold the update. Knows nothing of the engine that is tested with them.

Needs torch, transformers, peft, safetensors, numpy and mlx-lm. Usage: ``make_adapters.py OUT``; every run writes the
same bytes.
"""

import json
import math
import os
import re
import shutil
import sys
import types
from pathlib import Path

import mlx.core as mx
import numpy as np
import peft
import torch
import transformers
from mlx.utils import tree_flatten, tree_unflatten
from mlx_lm.lora import CONFIG_DEFAULTS
from mlx_lm.tuner.lora import LoRALinear
from mlx_lm.tuner.utils import linear_to_lora_layers, load_adapters
from mlx_lm.utils import dequantize_model, load_model, save_config
from safetensors.numpy import load_file

DATA = Path(__file__).resolve().parent
NEW_TOKENS = 16
FIRST_SEED, LAST_SEED = 100, 300
MARGIN = 0.05
UPDATE = 0.35  # deviation of an update's entries over 1 / sqrt(inputs); the base weights have 1.2
END_OF_SEQUENCE = {493, 495}
FIRST_PADDING_ID = 500
SAME_LOGITS = 1e-3  # bound on the difference between a merged and a separate update, both float32

ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
MLP = ["gate_proj", "up_proj", "down_proj"]
DELTA_NET = ["in_proj_qkv", "in_proj_z", "in_proj_a", "in_proj_b", "out_proj"]
SHARED_EXPERT = [f"shared_expert.{name}" for name in MLP]

CAUSAL = transformers.AutoModelForCausalLM
WRAPPER = transformers.Qwen3_5ForConditionalGeneration

# name: (fixture, class that opens it, dtype of base and adapter, arguments of peft's LoraConfig)
PEFT_ADAPTERS = {
    "llama-qv": ("tiny-llama-tied-f32", CAUSAL, "float32", {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj"]}),
    "llama-all-linear": (
        "tiny-llama-tied-f32",
        CAUSAL,
        "float32",
        {"r": 8, "lora_alpha": 16, "target_modules": ATTENTION + MLP},
    ),
    "llama-rslora": (
        "tiny-llama-tied-f32",
        CAUSAL,
        "float32",
        {"r": 4, "lora_alpha": 6, "use_rslora": True, "target_modules": ["q_proj", "o_proj", "up_proj"]},
    ),
    "llama-patterns": (
        "tiny-llama-tied-f32",
        CAUSAL,
        "float32",
        {
            "r": 4,
            "lora_alpha": 8,
            "target_modules": [*ATTENTION, "down_proj"],
            # the module's last name, a longer tail of its path, a regular expression, an anchored whole path
            "rank_pattern": {
                "v_proj": 2,
                "layers.0.self_attn.q_proj": 8,
                r"layers\.[01]\.self_attn\.o_proj": 3,
                r"^model\.layers\.1\.mlp\.down_proj": 6,
            },
            "alpha_pattern": {"v_proj": 12, "layers.1.self_attn.k_proj": 2, r"layers\.\d+\.mlp\.down_proj": 9},
        },
    ),
    "llama-dora": (
        "tiny-llama-tied-f32",
        CAUSAL,
        "float32",
        {"r": 2, "lora_alpha": 4, "use_dora": True, "target_modules": ["q_proj", "v_proj"]},
    ),
    "qwen35-text": (
        "tiny-qwen35-nested-bf16",
        CAUSAL,
        "float32",
        {"r": 4, "lora_alpha": 8, "target_modules": DELTA_NET + ATTENTION + MLP},
    ),
    "qwen35-wrapper": (
        "tiny-qwen35-nested-bf16",
        WRAPPER,
        "bfloat16",
        {"r": 4, "lora_alpha": 8, "target_modules": DELTA_NET + ATTENTION + MLP},
    ),
    "qwen35moe": (
        "tiny-qwen35moe-untied-f32",
        CAUSAL,
        "float32",
        {"r": 4, "lora_alpha": 8, "target_modules": DELTA_NET + ATTENTION + SHARED_EXPERT},
    ),
}

# name: (fixture, lora_parameters as mlx-lm's configuration file gives them)
MLX_ADAPTERS = {
    "mlx-llama": ("tiny-llama-tied-bf16", {"rank": 8, "dropout": 0.0, "scale": 20.0}),
    "mlx-qwen35": (
        "mlx-qwen35-4bit",
        {
            "rank": 4,
            "dropout": 0.0,
            "scale": 2.0,
            "keys": [
                *(f"linear_attn.{name}" for name in DELTA_NET),
                *(f"self_attn.{name}" for name in ATTENTION),
                *(f"mlp.{name}" for name in MLP),
            ],
        },
    ),
}


# ---------------------------------------------------------------------------------------------------- greedy runs
def greedy_run(prompt: list[int], last_logits) -> tuple[np.ndarray, np.ndarray]:
    """Continue ``prompt`` greedily without a cache: ids int32 [16] and margins float32 [16]."""
    ids, margins = list(prompt), []
    for _ in range(NEW_TOKENS):
        logits = last_logits(ids)
        second, first = np.sort(logits)[-2:]
        margins.append(first - second)
        ids.append(int(logits.argmax()))
    return np.array(ids[len(prompt) :], np.int32), np.array(margins, np.float32)


def is_clear(greedy: np.ndarray, margins: np.ndarray, base: np.ndarray) -> bool:
    """Whether no step is a near tie, none ends or pads the text, and the adapter changes the text."""
    new = set(greedy.tolist())
    ends = new & END_OF_SEQUENCE or max(new) >= FIRST_PADDING_ID
    return bool(margins.min() > MARGIN and not ends and (greedy != base[:NEW_TOKENS]).any())


def write_merged(out: Path, reference, logits: np.ndarray, greedy: np.ndarray, margins: np.ndarray) -> None:
    """Store what the merged model computes, beside the adapter's own files."""
    np.savez_compressed(
        out / "merged.npz",
        prompt_ids=reference["prompt_ids"],
        logits=logits.astype(np.float32),
        greedy_ids=greedy,
        greedy_margin=margins,
    )


def describe_checked(name: str, seed: int, merged: np.ndarray, base: np.ndarray, separate: float, margins: np.ndarray) -> None:
    """Stop if merged and separate update disagree, else one line per adapter for whoever runs the script."""
    if not separate < SAME_LOGITS:
        sys.exit(f"{name}: merged and separate update differ by {separate:.1e}, more than {SAME_LOGITS}")
    moved = np.abs(merged - base).max()
    print(
        f"{name}: seed {seed}, moves the logits by up to {moved:.2f}, merged and separate differ by {separate:.1e}, "
        f"least margin {margins.min():.3f}"
    )


# ----------------------------------------------------------------------------------------------------------- peft
def open_base(fixture: str, opener, dtype: str):
    """The fixture by its bare name, so that the adapter's configuration names it without a path."""
    return opener.from_pretrained(fixture, dtype=getattr(torch, dtype), attn_implementation="eager").eval()


def torch_logits(model, ids: list[int]) -> np.ndarray:
    with torch.no_grad():
        return model(input_ids=torch.tensor([ids]), use_cache=False).logits[0].float().numpy()


def write_peft_adapter(out: Path, fixture: str, opener, dtype: str, arguments: dict, seed: int) -> None:
    """What a training run with peft leaves behind: both matrices of every module are non-zero."""
    base = open_base(fixture, opener, dtype)
    config = peft.LoraConfig(task_type="CAUSAL_LM", **arguments)
    model = peft.get_peft_model(base, config, autocast_adapter_dtype=dtype == "float32")
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for layer in (module for module in model.modules() if isinstance(module, peft.tuners.lora.LoraLayer)):
            a, b = layer.lora_A["default"].weight, layer.lora_B["default"].weight
            rank, inputs = a.shape
            a.copy_(torch.randn(a.shape, generator=draw) / inputs**0.5)
            b.copy_(torch.randn(b.shape, generator=draw) * (UPDATE / (layer.scaling["default"] * rank**0.5)))
    shutil.rmtree(out, ignore_errors=True)
    model.save_pretrained(out)
    (out / "README.md").unlink()
    config_file = out / "adapter_config.json"
    saved = json.loads(config_file.read_text())
    saved["target_modules"].sort()  # peft keeps a set, whose order changes from run to run
    config_file.write_text(json.dumps(saved, indent=2, sort_keys=True))


def expected_scale(saved: dict, path: str, rank: int) -> float:
    """The scale of one module, computed from the saved configuration without peft's code."""

    def by_pattern(patterns: dict, otherwise: int) -> int:
        return next((value for key, value in patterns.items() if re.match(rf"(.*\.)?({key})$", path)), otherwise)

    if by_pattern(saved["rank_pattern"], saved["r"]) != rank:
        sys.exit(f"{path}: the rank on disk is {rank}, the configuration says otherwise")
    alpha = by_pattern(saved["alpha_pattern"], saved["lora_alpha"])
    return alpha / (math.sqrt(rank) if saved["use_rslora"] else rank)


def check_peft_merge(out: Path, base, merged) -> None:
    """Every merged weight is W + scale * B A with the tensors and the configuration on disk."""
    saved = json.loads((out / "adapter_config.json").read_text())
    original, result = base.state_dict(), merged.state_dict()
    tensors = {key: value.float() for key, value in safetensors_of(out).items()}
    paths = sorted(key.removesuffix(".lora_A.weight") for key in tensors if key.endswith(".lora_A.weight"))
    for path in paths:
        a, b = tensors[f"{path}.lora_A.weight"], tensors[f"{path}.lora_B.weight"]
        module = path.removeprefix("base_model.model.")
        expected = original[f"{module}.weight"] + expected_scale(saved, module, len(a)) * (b @ a)
        torch.testing.assert_close(result[f"{module}.weight"], expected, rtol=1e-5, atol=1e-6)
    changed = {key for key in original if not torch.equal(original[key], result[key])}
    if changed != {path.removeprefix("base_model.model.") + ".weight" for path in paths}:
        sys.exit(f"{out.name}: merging changed other weights than the file names")


def safetensors_of(out: Path) -> dict:
    from safetensors.torch import load_file as load_torch_file  # noqa: PLC0415 - beside numpy's of the same name

    return load_torch_file(out / "adapter_model.safetensors")


def make_peft_adapter(root: Path, name: str) -> None:
    """Write one adapter of peft with the first seed that gives a clear greedy run."""
    fixture, opener, dtype, arguments = PEFT_ADAPTERS[name]
    reference = np.load(DATA / fixture / "reference.npz")
    prompt = reference["prompt_ids"].tolist()
    out = root / name
    for seed in range(FIRST_SEED, LAST_SEED):
        write_peft_adapter(out, fixture, opener, dtype, arguments, seed)
        if arguments.get("use_dora"):
            print(f"{name}: seed {seed}, to be refused, so it has no merged.npz")
            return
        model = peft.PeftModel.from_pretrained(open_base(fixture, opener, "float32"), out)
        separate = torch_logits(model, prompt)
        merged = model.merge_and_unload()
        check_peft_merge(out, open_base(fixture, opener, "float32"), merged)
        logits = torch_logits(merged, prompt)
        greedy, margins = greedy_run(prompt, lambda ids, merged=merged: torch_logits(merged, ids)[-1])
        if is_clear(greedy, margins, reference["greedy_ids"]):
            write_merged(out, reference, logits, greedy, margins)
            describe_checked(name, seed, logits, reference["logits"], np.abs(separate - logits).max(), margins)
            return
    sys.exit(f"{name}: no seed gives a clear greedy run")


# ---------------------------------------------------------------------------------------------------------- mlx-lm
def open_mlx(fixture: str):
    """The fixture in float32: the weights, or the scales and offsets of the quantised ones."""
    model, _ = load_model(DATA / fixture)
    model.set_dtype(mx.float32)
    return model


def mlx_logits(model, ids: list[int]) -> np.ndarray:
    return np.array(model(mx.array([ids]))[0])


def write_mlx_adapter(out: Path, fixture: str, parameters: dict, seed: int) -> None:
    """The files of mlx-lm's trainer: its configuration, and every trainable parameter as it saves them."""
    arguments = json.loads(json.dumps(CONFIG_DEFAULTS))
    arguments.update(model=fixture, train=True, num_layers=-1, adapter_path=out.name, lora_parameters=parameters)
    model, _ = load_model(DATA / fixture)
    mx.random.seed(seed)
    model.freeze()
    linear_to_lora_layers(model, arguments["num_layers"], types.SimpleNamespace(**arguments).lora_parameters)
    for layer in (module for _, module in model.named_modules() if isinstance(module, LoRALinear)):
        inputs, rank = layer.lora_a.shape
        layer.lora_a = mx.random.normal(layer.lora_a.shape) / inputs**0.5
        layer.lora_b = mx.random.normal(layer.lora_b.shape) * (UPDATE / (layer.scale * rank**0.5))
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    save_config(arguments, out / "adapter_config.json")
    mx.save_safetensors(str(out / "adapters.safetensors"), dict(tree_flatten(model.trainable_parameters())))


def merge_mlx(out: Path, fixture: str, scale: float):
    """The dequantised model with W + scale * (A B)^T in the place of every adapted W, added up in float64."""
    model = dequantize_model(open_mlx(fixture))
    weights = dict(tree_flatten(model.parameters()))
    tensors = load_file(out / "adapters.safetensors")
    for path in (key.removesuffix(".lora_a") for key in tensors if key.endswith(".lora_a")):
        update = scale * (tensors[f"{path}.lora_a"].astype(np.float64) @ tensors[f"{path}.lora_b"].astype(np.float64)).T
        merged = np.array(weights[f"{path}.weight"]).astype(np.float64) + update
        weights[f"{path}.weight"] = mx.array(merged.astype(np.float32))
    model.update(tree_unflatten(list(weights.items())))
    return model


def make_mlx_adapter(root: Path, name: str) -> None:
    """Write one adapter of mlx-lm with the first seed that gives a clear greedy run."""
    fixture, parameters = MLX_ADAPTERS[name]
    reference = np.load(DATA / fixture / "reference.npz")
    prompt = reference["prompt_ids"].tolist()
    out = root / name
    for seed in range(FIRST_SEED, LAST_SEED):
        write_mlx_adapter(out, fixture, dict(parameters), seed)
        separate = mlx_logits(load_adapters(open_mlx(fixture), str(out)), prompt)
        merged = merge_mlx(out, fixture, parameters["scale"])
        logits = mlx_logits(merged, prompt)
        greedy, margins = greedy_run(prompt, lambda ids, merged=merged: mlx_logits(merged, ids)[-1])
        if is_clear(greedy, margins, reference["greedy_ids"]):
            write_merged(out, reference, logits, greedy, margins)
            describe_checked(name, seed, logits, reference["logits"], np.abs(separate - logits).max(), margins)
            return
    sys.exit(f"{name}: no seed gives a clear greedy run")


def main() -> None:
    """Write every adapter below the directory that the command line names."""
    root = Path(sys.argv[1]).resolve()
    os.chdir(DATA)
    torch.set_num_threads(1)
    mx.set_default_device(mx.cpu)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    for name in PEFT_ADAPTERS:
        make_peft_adapter(root, name)
    for name in MLX_ADAPTERS:
        make_mlx_adapter(root, name)
    for file in root.glob("*/*"):
        file.chmod(0o644)


if __name__ == "__main__":
    main()
