"""MLX's packed weights: one weight of its logical shape from three tensors, and what the record in a configuration may say."""

from pathlib import Path

import numpy as np
import pytest

from lattice_core.errors import ModelError
from lattice_core.types import AffineQuantization, TensorSpec
from lattice_safetensors.quantization_record import QuantizationRecord, Scheme
from tests.safetensors.damage import DATA, PACKED, change_json, rewrite
from tests.safetensors.safetensors_writer import tensors_of, zeros

CONFIG = Path("config.json")


def test_a_packed_weight_has_its_logical_shape_and_brings_scales_and_biases(loader):
    checkpoint = loader.open(DATA / "mlx-llama-4bit")
    stored = tensors_of(DATA / "mlx-llama-4bit" / "model.safetensors")
    name = f"{PACKED}.weight"
    data = checkpoint.read(name)
    assert data.spec == TensorSpec(name, "U32", (96, 192), AffineQuantization(4, 32, "BF16")) == checkpoint.tensors()[name]
    assert [bytes(part) for part in (data.data, data.scales, data.biases)] == [
        stored[f"{PACKED}.{part}"][2] for part in ("weight", "scales", "biases")
    ]
    assert f"{PACKED}.scales" not in checkpoint.tensors()
    assert checkpoint.nbytes == sum(len(data) for _, _, data in stored.values())


@pytest.mark.parametrize("name", ["mlx-llama-4bit", "mlx-qwen3-8bit", "mlx-qwen35-4bit", "mlx-qwen35moe-4bit"])
def test_every_tensor_of_a_file_is_listed_or_belongs_to_one_that_is(loader, name):
    checkpoint = loader.open(DATA / name)
    stored = tensors_of(DATA / name / "model.safetensors")
    packed = {weight.removesuffix(".weight") for weight, (dtype, _, _) in stored.items() if dtype == "U32"}
    companions = {f"{module}.{part}" for module in packed for part in ("scales", "biases")}
    assert set(checkpoint.tensors()) == set(stored) - companions
    assert {name for name, spec in checkpoint.tensors().items() if spec.quantization} == {f"{name}.weight" for name in packed}


def test_stacks_of_experts_and_overrides_by_path_are_read(loader):
    tensors = loader.open(DATA / "mlx-qwen35moe-4bit").tensors()
    layer = "language_model.model.layers.0.mlp"
    assert tensors[f"{layer}.switch_mlp.gate_proj.weight"].shape == (6, 32, 64)
    assert tensors[f"{layer}.switch_mlp.gate_proj.weight"].quantization == AffineQuantization(4, 32, "BF16")
    assert tensors[f"{layer}.gate.weight"] == TensorSpec(
        f"{layer}.gate.weight", "U32", (6, 64), AffineQuantization(8, 64, "BF16")
    )
    assert tensors[f"{layer}.shared_expert.down_proj.weight"].quantization is None


@pytest.mark.parametrize("bits", [2, 3, 4, 5, 6, 8])
@pytest.mark.parametrize("group", [32, 64, 128])
def test_the_width_follows_from_the_shapes_whatever_the_record_for_all_says(copied, loader, bits, group):
    directory = copied("mlx-llama-4bit")
    packed = {
        f"{PACKED}.weight": zeros("U32", 96, 256 * bits // 32),
        f"{PACKED}.scales": zeros("F16", 96, 256 // group),
        f"{PACKED}.biases": zeros("F16", 96, 256 // group),
    }
    rewrite(directory, lambda tensors: tensors.update(packed))
    record = {"group_size": 32, "bits": 4, PACKED: {"group_size": group}}
    change_json(directory / "config.json", quantization=record)
    spec = loader.open(directory).tensors()[f"{PACKED}.weight"]
    assert (spec.shape, spec.quantization) == ((96, 256), AffineQuantization(bits, group, "F16"))


@pytest.mark.parametrize("prefix", ["", "model.", "language_model.", "language_model.model.", "model.language_model."])
def test_a_record_under_another_wrapper_is_found(copied, loader, prefix):
    # 6 bits in groups of 64: read with the group size for all (32) the shapes would have another meaning.
    directory = copied("mlx-llama-4bit")
    packed = {
        f"{PACKED}.weight": zeros("U32", 96, 192 * 6 // 32),
        f"{PACKED}.scales": zeros("BF16", 96, 3),
        f"{PACKED}.biases": zeros("BF16", 96, 3),
    }
    rewrite(directory, lambda tensors: tensors.update(packed))
    path = prefix + PACKED.removeprefix("model.")
    change_json(directory / "config.json", quantization={"group_size": 32, "bits": 4, path: {"group_size": 64, "bits": 6}})
    spec = loader.open(directory).tensors()[f"{PACKED}.weight"]
    assert (spec.shape, spec.quantization) == ((96, 192), AffineQuantization(6, 64, "BF16"))


def test_a_record_that_was_lost_is_made_up_for_by_the_shapes(copied, loader):
    directory = copied("mlx-llama-4bit")
    packed = {f"{PACKED}.weight": zeros("U32", 96, 192 * 6 // 32)}
    rewrite(directory, lambda tensors: tensors.update(packed))
    record = {"group_size": 32, "bits": 4, "somewhere.else.layers.1.mlp.down_proj": {"group_size": 32, "bits": 6}}
    change_json(directory / "config.json", quantization=record)
    assert loader.open(directory).tensors()[f"{PACKED}.weight"].quantization == AffineQuantization(6, 32, "BF16")


def test_the_copy_of_the_record_serves_where_the_record_is_missing(copied, loader):
    directory = copied("mlx-llama-4bit")
    change_json(directory / "config.json", quantization=None)
    assert loader.open(directory).tensors() == loader.open(DATA / "mlx-llama-4bit").tensors()


def test_a_module_left_as_it_was_is_plain(copied, loader):
    directory = copied("mlx-llama-4bit")

    def unpack(tensors):
        del tensors[f"{PACKED}.scales"], tensors[f"{PACKED}.biases"]
        tensors[f"{PACKED}.weight"] = zeros("BF16", 96, 192)

    rewrite(directory, unpack)
    change_json(directory / "config.json", quantization={"group_size": 32, "bits": 4, PACKED: False})
    assert loader.open(directory).tensors()[f"{PACKED}.weight"].quantization is None


def test_a_packed_vector_is_refused(copied, loader):
    directory = copied("mlx-llama-4bit")
    packed = {"a.weight": zeros("U32", 4), "a.scales": zeros("F16", 1), "a.biases": zeros("F16", 1)}
    rewrite(directory, lambda tensors: tensors.update(packed))
    with pytest.raises(ModelError, match=r"tensor 'a.weight' \[4\] and 'a.scales' \[1\] do not fit together"):
        loader.open(directory)


@pytest.mark.parametrize(
    ("scales", "biases", "message"),
    [
        (zeros("F16", 96, 6), zeros("BF16", 96, 6), "has scales of F16 .* and biases of BF16 .* must be alike"),
        (zeros("BF16", 96, 6), zeros("BF16", 96, 3), "which must be alike"),
        (zeros("U8", 96, 6), zeros("U8", 96, 6), "of U8; only BF16, F16, F32 are read"),
        (zeros("BF16", 96, 0), zeros("BF16", 96, 0), "do not fit together"),
        (zeros("BF16", 96, 5), zeros("BF16", 96, 5), "24 words for 5 groups of 32"),
        (zeros("BF16", 96, 1), zeros("BF16", 96, 1), "24 words for 1 groups of 32"),
    ],
)
def test_scales_and_biases_that_do_not_belong_together_are_refused(copied, loader, scales, biases, message):
    directory = copied("mlx-llama-4bit")
    rewrite(directory, lambda tensors: tensors.update({f"{PACKED}.scales": scales, f"{PACKED}.biases": biases}))
    with pytest.raises(ModelError, match=message):
        loader.open(directory)


def test_dequantising_what_was_read_gives_what_the_scheme_says(loader):
    mx = pytest.importorskip("mlx.core")
    checkpoint = loader.open(DATA / "mlx-qwen35moe-4bit")
    for name, spec in checkpoint.tensors().items():
        if spec.quantization is None:
            continue
        data, scheme = checkpoint.read(name), spec.quantization
        rows = np.frombuffer(data.data, np.uint8).reshape(*spec.shape[:-1], -1)
        bits = np.unpackbits(rows, axis=-1, bitorder="little").reshape(*spec.shape, scheme.bits)
        numbers = (bits * (1 << np.arange(scheme.bits))).sum(-1)
        scales, biases = (
            (np.frombuffer(part, "<u2").astype("<u4") << 16).view("<f4").reshape(*spec.shape[:-1], -1)
            for part in (data.scales, data.biases)
        )
        expected = numbers * scales.repeat(scheme.group_size, -1) + biases.repeat(scheme.group_size, -1)
        words = np.frombuffer(data.data, "<u4").reshape(*spec.shape[:-1], -1)
        found = mx.dequantize(
            mx.array(words), mx.array(scales), mx.array(biases), group_size=scheme.group_size, bits=scheme.bits
        )
        np.testing.assert_allclose(np.array(found), expected, rtol=1e-6, atol=1e-6)


# ------------------------------------------------------------------------------------------ records


def test_an_exact_path_wins_over_the_same_module_under_another_wrapper():
    record = QuantizationRecord(
        {"group_size": 64, "bits": 4, "model.a": {"bits": 8}, "language_model.model.a": {"bits": 6, "group_size": 32}}, CONFIG
    )
    assert record.scheme("model.a") == Scheme(64, 8)
    assert record.scheme("language_model.model.a") == Scheme(32, 6)


def test_two_records_for_one_module_under_other_wrappers_are_none():
    record = QuantizationRecord(
        {"group_size": 64, "bits": 4, "language_model.a": {"bits": 8}, "text_model.a": {"bits": 6}}, CONFIG
    )
    assert record.scheme("model.a") == Scheme(64)


def test_a_record_of_another_layer_or_tower_is_not_taken():
    entries = {
        "model.layers.1.mlp.gate": {"bits": 8},
        "vision_tower.lm_head": {"bits": 8},
        "mtp.layers.0.mlp.gate": {"bits": 8},
    }
    record = QuantizationRecord({"group_size": 64, "bits": 4, **entries}, CONFIG)
    assert record.scheme("model.layers.0.mlp.gate") == record.scheme("lm_head") == Scheme(64)


def test_true_means_the_scheme_for_all_and_false_none():
    record = QuantizationRecord({"group_size": 64, "bits": 4, "a": True, "b": False}, CONFIG)
    assert record.scheme("a") == Scheme(64)
    assert record.scheme("b") == Scheme(64, quantised=False)


@pytest.mark.parametrize("mode", ["mxfp4", "mxfp8", "nvfp4", None, 1])
def test_other_modes_are_refused_for_all_and_for_one_module(mode):
    with pytest.raises(ModelError, match=r"config.json: quantization has the mode .*; only affine is read"):
        QuantizationRecord({"group_size": 32, "bits": 4, "mode": mode}, CONFIG)
    with pytest.raises(ModelError, match=r"quantization of 'model.a' has the mode"):
        QuantizationRecord({"group_size": 32, "bits": 4, "model.a": {"mode": mode}}, CONFIG)


@pytest.mark.parametrize("found", [{"bits": 7}, {"bits": "4"}, {"bits": True}, {"group_size": 0}, {"group_size": 64.0}])
def test_impossible_numbers_are_refused(found):
    with pytest.raises(ModelError, match=r"config.json: quantization of 'model.a' has"):
        QuantizationRecord({"group_size": 32, "bits": 4, "model.a": found}, CONFIG)
