import subprocess
import sys

import pytest

from lattice_core.descriptors import resolve
from lattice_core.errors import ModelError
from lattice_core.types import Match
from lattice_gguf import plugin
from lattice_gguf.loader import GgufLoader
from lattice_gguf.model_files import model_files, probe


def put(directory, *names):
    for name in names:
        (directory / name).write_bytes(b"")


def test_registers_one_loader_whose_paths_resolve():
    (spec,) = plugin.lattice_loaders()
    assert spec.name == "gguf"
    assert spec.resolve() is GgufLoader
    assert resolve(spec.probe) is probe


def test_registering_and_probing_import_no_numpy():
    code = (
        "import sys; from pathlib import Path; from lattice_core.descriptors import resolve; from lattice_gguf import plugin; "
        "[resolve(spec.probe)(Path('.')) for spec in plugin.lattice_loaders()]; print('numpy' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False"


def test_probe_knows_files_and_directories(tmp_path):
    put(tmp_path, "model.GGUF", "config.json")
    assert probe(tmp_path / "model.GGUF") == Match(30, "model.GGUF")
    assert probe(tmp_path) == Match(30, "model.GGUF")
    assert probe(tmp_path / "config.json") is None
    assert probe(tmp_path / "absent.gguf") is None


def test_probe_passes_a_directory_without_models(tmp_path):
    put(tmp_path, "mmproj-model.gguf", "model.safetensors")
    (tmp_path / "folder.gguf").mkdir()
    assert probe(tmp_path) is None


def test_a_directory_with_one_model_is_that_model(tmp_path):
    put(tmp_path, "model.gguf", "mmproj-model.gguf", "notes.txt")
    assert model_files(tmp_path) == (tmp_path / "model.gguf",)


def test_a_directory_with_several_models_is_an_error_that_lists_them(tmp_path):
    put(tmp_path, "a.gguf", "b-00001-of-00002.gguf", "b-00002-of-00002.gguf")
    assert probe(tmp_path) == Match(30, "3 GGUF files")
    with pytest.raises(ModelError, match=r"holds 2 GGUF models \(a.gguf, b-00001-of-00002.gguf\); name one"):
        model_files(tmp_path)


def test_shards_come_in_order_from_the_directory_or_any_shard(tmp_path):
    names = [f"m-{number:05}-of-00003.gguf" for number in (1, 2, 3)]
    put(tmp_path, *reversed(names))
    expected = tuple(tmp_path / name for name in names)
    assert model_files(tmp_path) == expected
    assert model_files(expected[1]) == expected


@pytest.mark.parametrize("names", [["m-00001-of-00002.gguf"], ["m-00001-of-99999.gguf"], ["m-00000-of-00000.gguf"]])
def test_a_missing_shard_is_an_error(tmp_path, names):
    put(tmp_path, *names)
    with pytest.raises(ModelError, match=r"is split into [0-9]+ files of which [01] are here"):
        model_files(tmp_path)


def test_a_directory_without_a_model_and_a_missing_file_are_errors(tmp_path):
    with pytest.raises(ModelError, match=r"holds no \*.gguf file"):
        model_files(tmp_path)
    with pytest.raises(ModelError, match=r"absent.gguf: no such file"):
        model_files(tmp_path / "absent.gguf")
