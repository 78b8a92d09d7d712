"""Adapters that PEFT and mlx-lm saved: every update against the stored tensors, by formulas of its own."""

import json
import re

import numpy as np
import pytest

from lattice_core.errors import ModelError
from lattice_safetensors.adapter_loader import open_adapter
from tests.safetensors.adapter_writer import NUMPY, words
from tests.safetensors.damage import DATA
from tests.safetensors.safetensors_writer import tensors_of

ADAPTERS = DATA / "adapters"
PEFT_NAMES = ["llama-qv", "llama-all-linear", "llama-rslora", "llama-patterns", "qwen35-text", "qwen35-wrapper", "qwen35moe"]
MLX_NAMES = ["mlx-llama", "mlx-qwen35"]


def stored(file):
    return {name: np.frombuffer(data, NUMPY[dtype]).reshape(shape) for name, (dtype, shape, data) in tensors_of(file).items()}


def below_decoder(path):
    return re.search(r"(layers\.\d+\..+|lm_head)$", path)[1]


def chosen(pattern, path, default):
    return next((value for key, value in pattern.items() if re.match(rf"(.*\.)?({key})$", path)), default)


def test_every_adapter_is_tested():
    assert sorted(path.name for path in ADAPTERS.iterdir()) == sorted([*PEFT_NAMES, *MLX_NAMES, "llama-dora"])


@pytest.mark.parametrize("name", PEFT_NAMES)
def test_updates_of_peft_are_those_of_its_files(name):
    adapter = open_adapter(ADAPTERS / name)
    config = json.loads((ADAPTERS / name / "adapter_config.json").read_text())
    tensors = stored(ADAPTERS / name / "adapter_model.safetensors")
    updates = adapter.updates()
    assert adapter.format == "PEFT"
    assert adapter.nbytes == sum(tensor.nbytes for tensor in tensors.values())
    paths = [key.removesuffix(".lora_A.weight") for key in tensors if key.endswith(".lora_A.weight")]
    assert sorted(updates) == sorted(map(below_decoder, paths))
    assert len(updates) * 2 == len(tensors)
    for path in paths:
        update = updates[below_decoder(path)]
        base_path = path.removeprefix("base_model.model.")
        rank = chosen(config["rank_pattern"], base_path, config["r"])
        alpha = chosen(config["alpha_pattern"], base_path, config["lora_alpha"])
        assert update.rank == rank
        assert update.scale == pytest.approx(alpha / (rank**0.5 if config["use_rslora"] else rank), rel=1e-15)
        np.testing.assert_array_equal(words(update.a), tensors[f"{path}.lora_A.weight"])
        np.testing.assert_array_equal(words(update.b), tensors[f"{path}.lora_B.weight"])


@pytest.mark.parametrize("name", MLX_NAMES)
def test_updates_of_mlx_lm_are_those_of_its_files(name):
    adapter = open_adapter(ADAPTERS / name)
    parameters = json.loads((ADAPTERS / name / "adapter_config.json").read_text())["lora_parameters"]
    tensors = stored(ADAPTERS / name / "adapters.safetensors")
    updates = adapter.updates()
    assert adapter.format == "MLX"
    paths = [key.removesuffix(".lora_a") for key in tensors if key.endswith(".lora_a")]
    assert sorted(updates) == sorted(map(below_decoder, paths))
    assert len(updates) * 2 == len(tensors)
    for path in paths:
        update = updates[below_decoder(path)]
        assert (update.rank, update.scale) == (parameters["rank"], parameters["scale"])
        np.testing.assert_array_equal(words(update.a), tensors[f"{path}.lora_a"].T)
        np.testing.assert_array_equal(words(update.b), tensors[f"{path}.lora_b"].T)


def test_dora_is_refused():
    with pytest.raises(ModelError, match=r"llama-dora/adapter_config.json: use_dora is true: DoRA is not supported"):
        open_adapter(ADAPTERS / "llama-dora")


def test_dora_is_refused_without_its_configuration_too(tmp_path):
    file = tmp_path / "alone.safetensors"
    file.write_bytes((ADAPTERS / "llama-dora" / "adapter_model.safetensors").read_bytes())
    with pytest.raises(ModelError, match=r"q_proj.lora_magnitude_vector' is a DoRA magnitude"):
        open_adapter(file)


def test_no_two_adapters_have_the_same_fingerprint():
    found = [open_adapter(ADAPTERS / name).fingerprint for name in PEFT_NAMES]
    assert len(set(found)) == len(found)
