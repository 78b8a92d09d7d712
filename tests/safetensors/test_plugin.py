"""What is registered, and which files are taken for a model."""

import subprocess
import sys

import pytest

from lattice_core.descriptors import resolve
from lattice_core.errors import ModelError
from lattice_core.types import Match
from lattice_gguf.model_files import probe as probe_gguf
from lattice_safetensors import plugin
from lattice_safetensors.loader import SafetensorsLoader
from lattice_safetensors.model_files import INDEX, SINGLE, ModelFiles, model_files, probe
from tests.safetensors.damage import DATA

SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")


def put(directory, *names):
    for name in names:
        (directory / name).write_bytes(b"")


def test_registers_one_loader_whose_paths_resolve():
    (spec,) = plugin.lattice_loaders()
    assert spec.name == "safetensors"
    assert spec.resolve() is SafetensorsLoader
    assert resolve(spec.probe) is probe


def test_registering_and_probing_import_nothing_heavy():
    code = (
        "import sys; from pathlib import Path; from lattice_core.descriptors import resolve; "
        "from lattice_safetensors import plugin; "
        "[resolve(spec.probe)(Path('.')) for spec in plugin.lattice_loaders()]; "
        "print(sorted({'numpy', 'mlx', 'json', 'lattice_safetensors.container'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_opening_a_model_imports_no_numpy():
    code = (
        "import sys; from pathlib import Path; from lattice_safetensors.loader import SafetensorsLoader; "
        f"checkpoint = SafetensorsLoader(None).open(Path({str(DATA / 'mlx-llama-4bit')!r})); "
        "[checkpoint.read(name) for name in checkpoint.tensors()]; print('numpy' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False"


def test_a_directory_with_a_single_file_or_an_index_matches(tmp_path):
    put(tmp_path, INDEX)
    assert probe(tmp_path) == Match(50, INDEX)
    put(tmp_path, SINGLE)
    assert probe(tmp_path) == Match(50, SINGLE)


def test_safetensors_win_over_gguf(tmp_path):
    put(tmp_path, SINGLE, "model.gguf")
    assert probe(tmp_path).score > probe_gguf(tmp_path).score


def test_shards_without_an_index_match_below_everything_else(tmp_path):
    put(tmp_path, *SHARDS, "model.gguf")
    assert probe(tmp_path) == Match(10, f"2 shards without {INDEX}")
    assert probe(tmp_path).score < probe_gguf(tmp_path).score


def test_adapters_and_other_files_are_no_models(tmp_path):
    put(tmp_path, "adapter_model.safetensors", "adapters.safetensors", "vision.safetensors", "adapter_config.json")
    assert probe(tmp_path) is None
    assert probe(tmp_path / "absent") is None


def test_a_file_is_a_model_where_a_configuration_lies_beside_it(tmp_path):
    put(tmp_path, "weights.safetensors", "config.txt")
    assert probe(tmp_path / "weights.safetensors") is None
    put(tmp_path, "config.json")
    assert probe(tmp_path / "weights.safetensors") == Match(50, "weights.safetensors")
    assert probe(tmp_path / "config.json") is None
    assert probe(tmp_path / "absent.safetensors") is None


@pytest.mark.parametrize("name", ["adapter_model.safetensors", "adapters.safetensors", "0000100_adapters.safetensors"])
def test_an_adapter_file_is_no_model_even_beside_a_configuration(tmp_path, name):
    put(tmp_path, name, "config.json")
    assert probe(tmp_path / name) is None


def test_a_single_file_wins_over_an_index(tmp_path):
    put(tmp_path, SINGLE, INDEX, *SHARDS)
    assert model_files(tmp_path) == ModelFiles(tmp_path, single=tmp_path / SINGLE)


def test_a_shard_stands_for_the_model_that_it_is_a_part_of(tmp_path):
    put(tmp_path, INDEX, *SHARDS, "config.json")
    assert model_files(tmp_path / SHARDS[1]) == ModelFiles(tmp_path, index=tmp_path / INDEX)
    assert model_files(tmp_path) == ModelFiles(tmp_path, index=tmp_path / INDEX)


def test_a_directory_without_weights_and_a_missing_one_are_errors(tmp_path):
    with pytest.raises(ModelError, match=r"holds neither model.safetensors nor model.safetensors.index.json"):
        model_files(tmp_path)
    with pytest.raises(ModelError, match=r"absent: no such file or directory"):
        model_files(tmp_path / "absent")
