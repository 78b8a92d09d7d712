"""What is taken for a KHQ4 directory, and what importing the plugin brings in."""

import subprocess
import sys

import pytest

from lattice_core.types import Match
from lattice_q4 import plugin
from lattice_q4.model_files import SCORE, probe
from lattice_safetensors.model_files import SCORE as SAFETENSORS_SCORE
from tests.q4.q4_directory import converted, write


def test_a_directory_of_q4_files_is_a_model(tmp_path):
    directory = write(tmp_path / "model")
    count = sum(name.endswith(".q4") for name in converted("tiny-qwen35-tied-bf16")[0])
    assert probe(directory) == Match(SCORE, f"{count} files *.q4")
    assert SCORE < SAFETENSORS_SCORE


@pytest.mark.parametrize("name", [".q4", "x.q4"])
def test_the_name_of_a_file_is_enough(tmp_path, name):
    (tmp_path / name).write_bytes(b"")
    assert probe(tmp_path) == Match(SCORE, name)


def test_other_paths_are_no_models(tmp_path):
    (tmp_path / "weights.q4").mkdir()
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "model.q4.txt").write_bytes(b"")
    (tmp_path / "one.q4").write_bytes(b"")
    assert probe(tmp_path / "sub") is None
    assert probe(tmp_path / "one.q4") is None
    assert probe(tmp_path / "nowhere") is None


def test_the_loader_is_registered_under_its_name():
    (spec,) = plugin.lattice_loaders()
    assert spec.name == "q4"
    assert spec.resolve().__name__ == "Q4Loader"


def test_importing_the_plugin_imports_neither_numpy_nor_mlx():
    code = "import sys, lattice_q4.plugin, lattice_q4.model_files; print([n for n in ('numpy', 'mlx') if n in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
