"""Directories that mlx-lm saved: turned factors, one scale, refusals of what is not plain LoRA."""

import logging

import numpy as np
import pytest

from lattice_core.errors import ModelError
from lattice_core.types import TensorSpec
from lattice_safetensors.adapter_loader import open_adapter
from tests.safetensors.adapter_writer import NUMPY, matrix, mlx_config, mlx_tensors, peft_tensors, words, write_mlx, write_peft

MODULE = "layers.0.self_attn.q_proj"
KEY = f"model.{MODULE}"


def refused(directory, said, tensors=None, config=None, **parameters):
    write_mlx(directory, tensors, config, **parameters)
    with pytest.raises(ModelError, match=said) as raised:
        open_adapter(directory)
    assert raised.value.message.startswith(f"{directory}/adapter")


@pytest.mark.parametrize("dtype", ["F32", "F16", "BF16"])
def test_factors_are_turned(tmp_path, dtype):
    tensors = mlx_tensors(dtype=dtype)
    adapter = open_adapter(write_mlx(tmp_path, tensors))
    update = adapter.updates()[MODULE]
    assert adapter.format == "MLX"
    assert update.a.spec == TensorSpec(f"{KEY}.lora_a", dtype, (4, 6))
    assert update.b.spec == TensorSpec(f"{KEY}.lora_b", dtype, (10, 4))
    stored = {name: np.frombuffer(data, NUMPY[dtype]).reshape(shape) for name, (_, shape, data) in tensors.items()}
    np.testing.assert_array_equal(words(update.a), stored[f"{KEY}.lora_a"].T)
    np.testing.assert_array_equal(words(update.b), stored[f"{KEY}.lora_b"].T)


def test_the_update_is_that_of_mlx_lms_forward_pass(tmp_path):
    tensors = mlx_tensors()
    update = open_adapter(write_mlx(tmp_path, tensors, scale=3.0)).updates()[MODULE]
    a = np.frombuffer(tensors[f"{KEY}.lora_a"][2], "<f4").reshape(6, 4)
    b = np.frombuffer(tensors[f"{KEY}.lora_b"][2], "<f4").reshape(4, 10)
    x = np.random.default_rng(7).normal(size=(3, 6))
    np.testing.assert_allclose(x @ (update.scale * words(update.b) @ words(update.a)).T, 3.0 * (x @ a) @ b, rtol=1e-5)


def test_the_same_adapter_in_both_notations_is_the_same_adapter(tmp_path):
    peft = peft_tensors()
    turned = {
        f"{KEY}.lora_{letter.lower()}": ("F32", shape[::-1], np.frombuffer(data, "<f4").reshape(shape).T.tobytes())
        for letter, (_, shape, data) in zip("AB", peft.values(), strict=True)
    }
    one = open_adapter(write_peft(tmp_path / "peft", peft))
    other = open_adapter(write_mlx(tmp_path / "mlx", turned, scale=2.0))
    assert one.fingerprint == other.fingerprint


def test_the_scale_is_taken_as_it_is(tmp_path):
    assert open_adapter(write_mlx(tmp_path, scale=-0.5)).updates()[MODULE].scale == -0.5


def test_an_alpha_is_not_used_as_mlx_lm_does_not_and_that_is_said(tmp_path, caplog):
    adapter = open_adapter(write_mlx(tmp_path, scale=10.0, alpha=16))
    assert adapter.updates()[MODULE].scale == 10.0
    assert caplog.messages == [
        f"{tmp_path}/adapter_config.json: lora_parameters: scale 10 is used as it is, alpha 16 is not, as in mlx-lm"
    ]


def test_an_alpha_that_changes_nothing_is_not_mentioned(tmp_path, caplog):
    with caplog.at_level(logging.INFO):
        open_adapter(write_mlx(tmp_path, alpha=4))
    assert caplog.messages == []


def test_older_configurations_name_no_kind_and_may_leave_out_the_rank(tmp_path):
    config = {"lora_layers": 16, "lora_parameters": {"scale": 10.0, "dropout": 0.0}}
    assert open_adapter(write_mlx(tmp_path, config=config)).updates()[MODULE].scale == 10.0


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (mlx_config() | {"fine_tune_type": "dora"}, "fine_tune_type is 'dora': only lora is supported"),
        (mlx_config() | {"fine_tune_type": "full"}, "fine_tune_type is 'full': these are whole weights"),
        (mlx_config() | {"fine_tune_type": 1}, "fine_tune_type is '1', a text is expected"),
        ({"lora_layers": 4, "use_dora": True}, "use_dora is true: only lora"),
        ({"fine_tune_type": "lora"}, "lora_parameters is missing; it holds the adapter's scale"),
        ({"lora_parameters": [1]}, r"lora_parameters is '\[1\]', an object is expected"),
        (mlx_config(scale=None), "lora_parameters: scale is missing; add the scale"),
        (mlx_config(scale=None, alpha=16), "lora_parameters: scale is missing; mlx-lm does not read alpha"),
        (mlx_config(scale="20"), "lora_parameters: scale is '20', a finite number other than 0"),
        (mlx_config(scale=0.0), r"lora_parameters: scale is '0\.0', a finite number other than 0"),
        (mlx_config(scale=1e39), r"lora_parameters: scale is '1e\+39', a finite number"),
        (mlx_config(rank=-1), "lora_parameters: rank is '-1', a rank of 1 to 4096"),
    ],
)
def test_a_configuration_that_is_wrong_or_not_plain_lora_is_refused(tmp_path, config, said):
    refused(tmp_path, f"adapter_config.json: {said}", config=config)


def test_a_rank_that_contradicts_the_configuration_names_the_tensor(tmp_path):
    refused(tmp_path, f"gives '{KEY}' the rank 8, its tensor '{KEY}.lora_a' has 4", rank=8)


def test_adapters_on_experts_are_refused_with_the_tensor_named(tmp_path):
    name = "model.layers.0.mlp.switch_mlp.gate_proj"
    tensors = {f"{name}.lora_a": matrix("F32", 8, 4, 6), f"{name}.lora_b": matrix("F32", 8, 10, 4)}
    refused(tmp_path, rf"'{name}.lora_a' is \[8, 4, 6\], no matrix \(adapters on experts are not supported\)", tensors)


def test_a_dora_magnitude_is_refused(tmp_path):
    refused(tmp_path, f"'{KEY}.m' is a DoRA magnitude", mlx_tensors() | {f"{KEY}.m": matrix("F32", 10)})


def test_an_update_of_embeddings_has_the_orientation_of_their_weight(tmp_path):
    tensors = mlx_tensors("model.embed_tokens", width=32, out=6)  # lora_a [vocabulary, rank], lora_b [rank, hidden]
    update = open_adapter(write_mlx(tmp_path, tensors)).updates()["embed_tokens"]
    stored = [np.frombuffer(data, "<f4").reshape(shape) for _, shape, data in tensors.values()]
    np.testing.assert_array_equal(words(update.b) @ words(update.a), stored[0] @ stored[1])
    assert update.rank == 4


@pytest.mark.parametrize("prefix", ["", "model.", "language_model.model."])
def test_wrappers_around_the_decoder_are_no_part_of_a_modules_name(tmp_path, prefix):
    adapter = open_adapter(write_mlx(tmp_path, mlx_tensors(prefix + MODULE)))
    assert list(adapter.updates()) == [MODULE]


def test_a_configuration_of_the_other_library_is_refused(tmp_path):
    refused(tmp_path, "named as PEFT names them, the adapter_config.json beside it is MLX's", peft_tensors())


def test_a_checkpoint_of_a_training_run_uses_the_configuration_beside_it(tmp_path):
    directory = write_mlx(tmp_path)
    file = (directory / "adapters.safetensors").rename(directory / "0000100_adapters.safetensors")
    assert open_adapter(file).updates()[MODULE].scale == 20.0
