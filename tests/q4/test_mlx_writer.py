"""What ``lattice quantize --format mlx`` writes: packed numbers, names, layout and configuration."""

import json

import mlx.core as mx
import numpy as np
import pytest

from lattice_core.errors import ModelError
from lattice_q4 import mlx_writer, source_tensors
from tests.gguf import gguf_writer, qwen_conversion
from tests.gguf.hf_model import HfModel, fixture
from tests.q4.q4_directory import DATA, NESTED, TIED, weights
from tests.q4.quantized import made, mlx_values, opened
from tests.safetensors.safetensors_writer import parsed, tensors_of

UNTIED, EXPERTS, SINGLE_EXPERTS = "tiny-qwen35-untied-bf16", "tiny-qwen35moe-untied-bf16", "tiny-qwen35moe-untied-f32"
DENSE = ("tiny-llama-tied-bf16", "tiny-llama3rope-untied-bf16", "tiny-qwen3-tied-f32")
P = "language_model.model."


def values_of(directory):
    return mlx_values(directory, json.loads((directory / "config.json").read_text()))


def is_close(found, scales, original):
    """Within one step of each group (MLX moves the steps so that the largest value is exact) and the rounding of bfloat16."""
    step = np.repeat(np.abs(scales), original.shape[-1] // scales.shape[-1], axis=-1)
    return (np.abs(found - original) <= step * 1.02 + np.abs(original).max() / 128).all()


@pytest.mark.parametrize("bits", [2, 3, 4, 5, 6, 8])
@pytest.mark.parametrize("group_size", [32, 64])
def test_matrices_are_packed_as_mlx_packs_them(tmp_path, bits, group_size):
    model = "tiny-llama3rope-untied-bf16"
    target = made(DATA / model, tmp_path / "out", "mlx", bits=bits, group_size=group_size)
    stored = tensors_of(target / "model.safetensors")
    values, packed = values_of(target)
    assert {scheme[:2] for scheme in packed.values()} == {(bits, group_size)}
    for name, (_, _, scales) in packed.items():
        original = weights(model)[name]
        assert is_close(values[name], scales, original)
        whole = mx.quantize(mx.array(original).astype(mx.bfloat16), group_size=group_size, bits=bits)
        for part, expected in zip(("weight", "scales", "biases"), whole, strict=True):
            data = stored[f"{name.removesuffix('.weight')}.{part}"][2]
            assert bytes(data) == np.array(expected.view(mx.uint32 if part == "weight" else mx.uint16)).tobytes()


def test_the_defaults_are_four_bits_in_groups_of_64(tmp_path):
    target = made(DATA / TIED, tmp_path / "out", "mlx")
    config = json.loads((target / "config.json").read_text())
    assert config["quantization"] == config["quantization_config"] == {"group_size": 64, "bits": 4, "mode": "affine"}


@pytest.mark.parametrize("model", DENSE)
def test_dense_models_keep_their_names_and_small_tensors(tmp_path, model):
    target = made(DATA / model, tmp_path / "out", "mlx", group_size=32)
    values, packed = values_of(target)
    assert set(values) == set(weights(model))
    assert set(packed) == {name for name, original in weights(model).items() if original.ndim == 2}
    originals = tensors_of(DATA / model / "model.safetensors")
    stored = tensors_of(target / "model.safetensors")
    for name in set(values) - set(packed):
        assert stored[name] == originals[name]
    written, original = (json.loads((path / "config.json").read_text()) for path in (target, DATA / model))
    assert {key: value for key, value in written.items() if not key.startswith("quantization")} == original


@pytest.mark.parametrize("model", [TIED, UNTIED, NESTED])
def test_qwen3_5_takes_the_layout_of_mlx(tmp_path, model):
    values, packed = values_of(made(DATA / model, tmp_path / "out", "mlx", group_size=32))
    expected = {}
    for name, original in weights(model).items():
        if name.startswith(("model.visual.", "mtp.")):
            continue
        plain = name.removeprefix("model.").removeprefix("language_model.")
        expected["language_model.lm_head.weight" if name == "lm_head.weight" else P + plain] = original
    assert set(values) == set(expected)
    for name, original in expected.items():
        if name in packed:
            assert is_close(values[name], packed[name][2], original)
        elif name.endswith("conv1d.weight"):
            np.testing.assert_array_equal(values[name], original.transpose(0, 2, 1))
        elif name.endswith("norm.weight") and not name.endswith("linear_attn.norm.weight"):
            np.testing.assert_array_equal(values[name], original + np.float32(1))
        else:
            np.testing.assert_array_equal(values[name], original)


def test_norms_that_hold_one_more_are_float32_so_that_nothing_is_lost(tmp_path):
    stored = tensors_of(made(DATA / UNTIED, tmp_path / "out", "mlx") / "model.safetensors")
    kinds = {name: dtype for name, (dtype, _, _) in stored.items() if name.endswith("norm.weight")}
    assert {kind for name, kind in kinds.items() if not name.endswith("linear_attn.norm.weight")} == {"F32"}
    assert {kind for name, kind in kinds.items() if name.endswith("linear_attn.norm.weight")} == {"BF16"}
    original = weights(UNTIED)["model.norm.weight"]
    bfloat16 = np.array((mx.array(original).astype(mx.bfloat16) + 1).astype(mx.float32))
    assert (bfloat16 != original + 1).any()


def test_a_flat_configuration_is_nested_and_a_nested_one_is_kept(tmp_path):
    flat = json.loads((made(DATA / TIED, tmp_path / "flat", "mlx") / "config.json").read_text())
    original = json.loads((DATA / TIED / "config.json").read_text())
    assert flat["model_type"] == "qwen3_5"
    assert flat["text_config"] == original
    assert flat["tie_word_embeddings"] is True
    nested = json.loads((made(DATA / NESTED, tmp_path / "nested", "mlx") / "config.json").read_text())
    original = json.loads((DATA / NESTED / "config.json").read_text())
    assert {key: value for key, value in nested.items() if not key.startswith("quantization")} == original
    experts = json.loads((made(DATA / EXPERTS, tmp_path / "moe", "mlx") / "config.json").read_text())
    assert experts["model_type"] == "qwen3_5_moe"


@pytest.mark.parametrize("model", [EXPERTS, SINGLE_EXPERTS])
def test_experts_become_three_stacks_and_routers_have_eight_bits(tmp_path, model):
    target = made(DATA / model, tmp_path / "out", "mlx", group_size=32)
    values, packed = values_of(target)
    stacked = weights(EXPERTS)
    for number in range(4):
        block = f"layers.{number}.mlp."
        gate_up, down = (stacked[f"model.{block}experts.{name}"] for name in ("gate_up_proj", "down_proj"))
        inner = gate_up.shape[1] // 2
        parts = {"gate": gate_up[:, :inner], "up": gate_up[:, inner:], "down": down}
        for kind, original in parts.items():
            name = f"{P}{block}switch_mlp.{kind}_proj.weight"
            assert values[name].shape == original.shape
            if name in packed:
                assert is_close(values[name], packed[name][2], original)
            else:
                np.testing.assert_allclose(values[name], original, rtol=1e-2)
        config = json.loads((target / "config.json").read_text())["quantization"]
        for name in ("gate", "shared_expert_gate"):
            assert packed[f"{P}{block}{name}.weight"][:2] == (8, 64)
            assert config[f"{P}{block}{name}"] == {"group_size": 64, "bits": 8}
    assert not [name for name in values if ".experts." in name]


def test_matrices_whose_rows_do_not_divide_into_groups_stay_as_they_are_and_that_is_said(tmp_path, capsys):
    target = made(DATA / EXPERTS, tmp_path / "out", "mlx", group_size=32)
    values, packed = values_of(target)
    odd = {name for name, original in values.items() if name.endswith("_proj.weight") and original.shape[-1] % 32}
    assert odd
    said = f"{len(odd)} tensors are not quantised, whose rows do not divide into groups of 32: {P}layers.0.mlp."
    assert said in capsys.readouterr().err
    assert not odd & set(packed)
    checkpoint = opened(target, "mlx")
    assert all(checkpoint.tensors()[name].quantization is None for name in odd)


def test_a_model_without_any_matrix_that_divides_is_refused(tmp_path):
    tensors = {"model.embed_tokens.weight": np.ones((4, 96), np.float32)}
    checkpoint = HfModel({**fixture("tiny-llama-tied-f32").config}, tensors)
    with pytest.raises(ModelError, match="no matrix of this model divides into groups of 64"):
        made(DATA / TIED, tmp_path / "out", "mlx", checkpoint=checkpoint)


def test_hybrid_models_of_other_families_are_refused(tmp_path):
    checkpoint = opened(DATA / TIED, "mlx")
    checkpoint.config = {**checkpoint.config, "model_type": "qwen3_next"}
    with pytest.raises(ModelError, match=r"'qwen3_next' is not known here: quantise it with --format q4"):
        made(DATA / TIED, tmp_path / "out", "mlx", checkpoint=checkpoint)


@pytest.mark.parametrize("model", ["tiny-qwen35-untied-f32", "tiny-qwen35moe-untied-f32"])
def test_what_another_format_stores_in_the_layout_of_mlx_is_not_moved_again(tmp_path, model):
    from lattice_gguf.loader import GgufLoader  # noqa: PLC0415  the loader of this test only

    original = fixture(model if "moe" not in model else EXPERTS)
    path = tmp_path / "model.gguf"
    path.write_bytes(gguf_writer.document(qwen_conversion.metadata(original), qwen_conversion.tensors(original, "F32")))
    converted, _ = values_of(made(path, tmp_path / "gguf", "mlx", group_size=32, checkpoint=GgufLoader(None).open(path)))
    source = HfModel(original.config, original.tensors_by_name)
    expected, packed = values_of(made(DATA / TIED, tmp_path / "hf", "mlx", group_size=32, checkpoint=source))
    assert set(converted) == set(expected)
    for name, values in expected.items():
        np.testing.assert_allclose(converted[name], values, rtol=1e-6, atol=1e-6, err_msg=name)
    assert packed


def test_large_models_are_cut_into_shards_that_the_index_names(tmp_path, monkeypatch):
    whole = tensors_of(made(DATA / UNTIED, tmp_path / "whole", "mlx", group_size=32) / "model.safetensors")
    monkeypatch.setattr(mlx_writer, "_SHARD", 40_000)
    monkeypatch.setattr(source_tensors, "PIECE", 1000)
    target = made(DATA / UNTIED, tmp_path / "cut", "mlx", group_size=32)
    index = json.loads((target / "model.safetensors.index.json").read_text())
    files = sorted(path.name for path in target.glob("*.safetensors"))
    count = len(files)
    assert count > 3
    assert files == [f"model-{number:05}-of-{count:05}.safetensors" for number in range(1, count + 1)]
    found = {}
    for file in files:
        tensors = tensors_of(target / file)
        held = sum(len(data) for _, _, data in tensors.values())
        assert held <= 40_000 or len(tensors) == 3
        assert {name for name, place in index["weight_map"].items() if place == file} == set(tensors)
        assert parsed(target / file)[0]["__metadata__"] == {"format": "mlx"}
        found |= tensors
    assert found == whole
    assert index["metadata"]["total_size"] == sum(len(data) for _, _, data in whole.values())
    checkpoint = opened(target, "mlx")
    assert "U32" in {checkpoint.read(name).spec.dtype for name in checkpoint.tensors()}
