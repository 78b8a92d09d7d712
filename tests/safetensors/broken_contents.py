"""Sound files that say what cannot be run: configurations, packed weights, text, tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.safetensors.damage import PACKED, broken, change_json, copy, found_after_opening, rewrite
from tests.safetensors.safetensors_writer import zeros

if TYPE_CHECKING:
    from pathlib import Path


@broken
def build_missing_config(directory: Path) -> str:
    copy(directory)
    (directory / "config.json").unlink()
    return "config.json is missing"


@broken
def build_config_not_an_object(directory: Path) -> str:
    copy(directory)
    (directory / "config.json").write_text('["LlamaForCausalLM"]')
    return "config.json: holds a JSON array, an object is expected"


@broken
def build_config_not_json(directory: Path) -> str:
    copy(directory)
    (directory / "config.json").write_text("{'architectures': None}")
    return "config.json: is no valid JSON: syntax error at line 1"


@broken
def build_config_duplicate_key(directory: Path) -> str:
    copy(directory)
    path = directory / "config.json"
    path.write_text(path.read_text().replace('"rms_norm_eps"', '"hidden_size": 64, "rms_norm_eps"'))
    return 'config.json: is no valid JSON: the key "hidden_size" stands twice'


@broken
def build_config_too_large(directory: Path) -> str:
    copy(directory)
    path = directory / "config.json"
    path.write_text(path.read_text() + " " * (8 << 20))
    return f"bytes; at most {8 << 20} are read"


@broken
def build_config_nested_too_deeply(directory: Path) -> str:
    copy(directory)
    path = directory / "config.json"
    path.write_text('{"a":' * 33 + "1" + "}" * 33)
    return "config.json: is no valid JSON: it is nested more than 32 deep"


@broken
def build_config_with_nan(directory: Path) -> str:
    copy(directory)
    path = directory / "config.json"
    path.write_text(path.read_text().replace("1e-05", "NaN"))
    return "config.json: is no valid JSON: NaN is no JSON number"


@broken
def build_gptq(directory: Path) -> str:
    copy(directory)
    change_json(directory / "config.json", quantization_config={"quant_method": "gptq", "bits": 4, "group_size": 128})
    return "the weights are quantised by 'gptq', which is not read"


@broken
def build_gptq_without_config(directory: Path) -> str:
    copy(directory)
    rewrite(directory, lambda tensors: tensors.update({f"{PACKED}.qweight": zeros("U32", 24, 96)}))
    return f"tensor '{PACKED}.qweight' is packed as GPTQ or AWQ do it"


@broken
def build_fp8_in_nested_config(directory: Path) -> str:
    copy(directory, "tiny-llama-tied-bf16")
    path = directory / "config.json"
    change_json(path, text_config={"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}})
    return "the weights are quantised by 'fp8', which is not read"


@broken
def build_bitsandbytes(directory: Path) -> str:
    copy(directory)
    change_json(directory / "config.json", quantization_config={"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"})
    return "describes an unknown scheme (bnb_4bit_quant_type, load_in_4bit)"


@broken
def build_packed_without_scales(directory: Path) -> str:
    copy(directory, "mlx-llama-4bit")
    rewrite(directory, lambda tensors: tensors.pop(f"{PACKED}.scales"))
    return f"tensor '{PACKED}.weight' is packed (U32), but '{PACKED}.scales' is missing"


@broken
def build_packed_without_biases(directory: Path) -> str:
    copy(directory, "mlx-llama-4bit")
    rewrite(directory, lambda tensors: tensors.pop(f"{PACKED}.biases"))
    return f"tensor '{PACKED}.weight' is packed (U32), but '{PACKED}.biases' is missing"


@broken
def build_scales_without_weight(directory: Path) -> str:
    copy(directory, "mlx-llama-4bit")
    rewrite(directory, lambda tensors: tensors.pop(f"{PACKED}.weight"))
    return f"belongs to '{PACKED}.weight', which is missing"


@broken
def build_scales_of_a_plain_weight(directory: Path) -> str:
    copy(directory, "mlx-llama-4bit")
    rewrite(directory, lambda tensors: tensors.update({f"{PACKED}.weight": zeros("BF16", 96, 192)}))
    return f"belongs to '{PACKED}.weight', which is BF16 and not packed"


@broken
def build_packed_without_record(directory: Path) -> str:
    copy(directory, "mlx-llama-4bit")
    change_json(directory / "config.json", quantization=None, quantization_config=None)
    return "is packed (U32), but config.json has no 'quantization'"


@broken
def build_record_without_group_size(directory: Path) -> str:
    copy(directory, "mlx-llama-4bit")
    change_json(directory / "config.json", quantization={"bits": 4})
    return "quantization says no group_size"


@broken
def build_record_contradicts_shapes(directory: Path) -> str:
    copy(directory, "mlx-llama-4bit")
    record = {"group_size": 32, "bits": 4, PACKED: {"group_size": 32, "bits": 6}}
    change_json(directory / "config.json", quantization=record)
    return f"tensor '{PACKED}.weight': config.json says 6 bits in groups of 32, the shapes say 4 bits"


@broken
def build_record_says_not_quantised(directory: Path) -> str:
    copy(directory, "mlx-llama-4bit")
    change_json(directory / "config.json", quantization={"group_size": 32, "bits": 4, PACKED: False})
    return f"tensor '{PACKED}.weight' is packed (U32), but config.json says that it is not quantised"


@broken
def build_impossible_width(directory: Path) -> str:
    copy(directory, "mlx-llama-4bit")
    change_json(directory / "config.json", quantization={"group_size": 64, "bits": 4, PACKED: {"group_size": 128}})
    return f"tensor '{PACKED}.weight' has 24 words for 6 groups of 128, which is no width"


@broken
def build_scales_do_not_fit(directory: Path) -> str:
    copy(directory, "mlx-llama-4bit")
    rewrite(directory, lambda tensors: tensors.update({f"{PACKED}.scales": zeros("BF16", 95, 6)}))
    return f"tensor '{PACKED}.weight' [96, 24] and '{PACKED}.scales' [95, 6] do not fit together"


@broken
def build_mxfp4(directory: Path) -> str:
    copy(directory, "mlx-llama-4bit")
    change_json(directory / "config.json", quantization={"group_size": 32, "bits": 4, "mode": "mxfp4"})
    return "quantization has the mode 'mxfp4'; only affine is read"


@broken
def build_tokenizer_config_not_json(directory: Path) -> str:
    copy(directory)
    (directory / "tokenizer_config.json").write_text("{")
    return "tokenizer_config.json: is no valid JSON"


@broken
def build_generation_config_not_an_object(directory: Path) -> str:
    copy(directory)
    (directory / "generation_config.json").write_text("1")
    return "generation_config.json: holds a JSON number, an object is expected"


@broken
def build_chat_template_no_text(directory: Path) -> str:
    copy(directory)
    change_json(directory / "tokenizer_config.json", chat_template=[{"name": "default", "template": 5}])
    return "chat_template is neither a text nor a list of named ones"


@found_after_opening
def build_missing_tokenizer(directory: Path) -> str:
    copy(directory)
    (directory / "tokenizer.json").unlink()
    return "tokenizer.json is missing; get it too, or name another one by --tokenizer-dir"


@found_after_opening
def build_unknown_architecture(directory: Path) -> str:
    copy(directory)
    change_json(directory / "config.json", architectures=["MarsForCausalLM"], model_type="mars")
    return "'MarsForCausalLM'"


@found_after_opening
def build_wrong_shape(directory: Path) -> str:
    copy(directory)
    rewrite(directory, lambda tensors: tensors.update({f"{PACKED}.weight": zeros("BF16", 96, 190)}))
    return f"{PACKED}.weight is [96, 190], the config asks for [96, 192]"


@found_after_opening
def build_missing_tensor(directory: Path) -> str:
    copy(directory)
    rewrite(directory, lambda tensors: tensors.pop(f"{PACKED}.weight"))
    return f"the checkpoint lacks 1 tensor: {PACKED}.weight"


@found_after_opening
def build_unexpected_tensor(directory: Path) -> str:
    copy(directory)
    rewrite(directory, lambda tensors: tensors.update({"model.layers.1.mlp.extra_proj.weight": zeros("BF16", 4, 4)}))
    return "model.layers.1.mlp.extra_proj.weight"


@found_after_opening
def build_unreadable_dtype(directory: Path) -> str:
    copy(directory)
    rewrite(directory, lambda tensors: tensors.update({f"{PACKED}.weight": ("F8_E4M3", (96, 192), bytes(96 * 192))}))
    return f"tensor {PACKED}.weight is F8_E4M3"


@found_after_opening
def build_nan_scale(directory: Path) -> str:
    copy(directory, "mlx-llama-4bit")

    def damage(tensors: dict) -> None:
        dtype, shape, stored = tensors[f"{PACKED}.scales"]
        tensors[f"{PACKED}.scales"] = (dtype, shape, stored[:-2] + b"\xc0\x7f")

    rewrite(directory, damage)
    return f"tensor {PACKED}.weight holds numbers that are not finite"


@found_after_opening
def build_tied_with_another_head(directory: Path) -> str:
    copy(directory)
    rewrite(directory, lambda tensors: tensors.update({"lm_head.weight": zeros("BF16", 512, 96)}))
    return "tie_word_embeddings is true, but the checkpoint holds lm_head.weight with other numbers"
