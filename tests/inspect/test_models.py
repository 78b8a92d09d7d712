"""Whole models and adapters through the command, with MLX; what is said of memory is compared with the loaded model."""

import json
import shutil
from pathlib import Path

import pytest

from lattice_core.cli import main
from lattice_core.descriptors import Settings
from lattice_core.types import Limits
from lattice_mlx.backend import MlxBackend
from lattice_mlx.plugin import lattice_backends
from lattice_safetensors.loader import SafetensorsLoader

DATA = Path(__file__).parents[1] / "data"
MODELS = sorted(path.parent.name for path in DATA.glob("*/config.json"))
ADAPTERS = sorted(path.parent.name for path in DATA.glob("adapters/*/adapter_config.json"))


@pytest.fixture
def report(capsys):
    def call(*arguments, status=0):
        found = main(["inspect", *map(str, arguments), "--json", "--mlx-device", "cpu"])
        output = capsys.readouterr()
        assert found == status, output.err + output.out
        return json.loads(output.out)

    return call


def test_there_are_models_and_adapters_to_inspect():
    assert len(MODELS) >= 16
    assert len(ADAPTERS) >= 9


@pytest.mark.parametrize("name", MODELS)
def test_every_model_is_said_to_be_what_it_turns_out_to_be(report, name):
    found = report(DATA / name, "--context", 200)
    assert (found["loadable"], found["problems"]) == (True, [])
    checkpoint = SafetensorsLoader(Settings()).open(DATA / name)
    options = {option.name: option.default for spec in lattice_backends() for option in spec.options}
    backend = MlxBackend(Settings(own={**options, "device": "cpu"}))
    model = backend.load(checkpoint, Limits(context=200), lambda _done, _total: None)
    info = model.info
    assert found["memory"]["weights"] == pytest.approx(info.nbytes, rel=0.01)
    assert found["memory"]["state_one_row"] == info.state_bytes(200)
    assert (found["context"], found["vocab_size"], found["dtype"]) == (200, info.vocab_size, info.dtype)
    assert {item["id"] for item in found["eos_ids"]} == info.eos_ids
    assert found["architecture"] == info.architecture
    assert found["chat_template"] is not None
    stored = sum(row["bytes"] for row in found["tensors"]["by_kind"])
    assert stored == checkpoint.nbytes


def test_quantised_tensors_are_counted_by_scheme(report):
    schemes = report(DATA / "mlx-qwen35moe-4bit")["tensors"]["quantization"]
    assert [(item["bits"], item["group_size"]) for item in schemes] == [(4, 32), (8, 64)]


def test_tensors_of_other_towers_are_listed_as_skipped(report):
    skipped = report(DATA / "tiny-qwen35-nested-bf16")["accounting"]["skipped"]
    assert any(name.startswith("model.visual.") for name in skipped)


@pytest.fixture
def copied(tmp_path):
    path = tmp_path / "model"
    shutil.copytree(DATA / "tiny-llama-tied-f32", path)
    return path


def changed(path, **fields):
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | fields))
    return config


def test_a_layer_too_few_is_named_as_missing(report, copied):
    layers = changed(copied)["num_hidden_layers"]
    changed(copied, num_hidden_layers=layers + 1)
    found = report(copied, status=3)
    assert found["loadable"] is False
    assert f"model.layers.{layers}.mlp.up_proj.weight" in found["accounting"]["missing"]
    assert found["tensors"]["count"] == 20


def test_another_architecture_is_named_and_the_tensors_are_shown(report, copied):
    changed(copied, architectures=["GrokForCausalLM"], model_type="grok")
    found = report(copied, status=3)
    assert "GrokForCausalLM" in found["problems"][0]
    assert found["tensors"]["count"] == 20


def test_a_context_beyond_the_models_is_refused(report, copied):
    found = report(copied, "--context", 10**6, status=3)
    assert "--context 1000000" in found["problems"][0]


def test_a_missing_tokenizer_is_a_problem_and_hides_nothing_else(report, copied):
    (copied / "tokenizer.json").unlink()
    found = report(copied, status=3)
    assert "tokenizer" in found["problems"][0]
    assert found["memory"]["weights"] > 0


@pytest.mark.parametrize("name", [name for name in ADAPTERS if "dora" not in name])
def test_every_adapter_is_described(report, name):
    folder = DATA / "adapters" / name
    found = report(folder)
    assert found["what"] == "adapter"
    assert found["modules"] > 0
    assert all(rank >= 1 for rank in found["ranks"])
    config = json.loads((folder / "adapter_config.json").read_text())
    if "target_modules" in config and isinstance(config["target_modules"], list):
        assert set(found["kinds"]) == {name.rpartition(".")[2] for name in config["target_modules"]}


def test_a_mixed_adapter_shows_all_its_ranks_and_scales(report):
    found = report(DATA / "adapters" / "llama-patterns", "--tensors")
    assert len(found["ranks"]) > 1
    assert sorted({row["rank"] for row in found["each"]}) == found["ranks"]


def test_an_adapter_that_cannot_be_served_is_refused(capsys):
    assert main(["inspect", str(DATA / "adapters" / "llama-dora")]) == 3
    assert "dora" in capsys.readouterr().err.lower()
