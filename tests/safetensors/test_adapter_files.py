"""Which paths are taken for adapters, and what is said of those that cannot be opened."""

import subprocess
import sys

import pytest

from lattice_core.descriptors import resolve
from lattice_core.errors import ModelError
from lattice_core.types import Match
from lattice_safetensors import plugin
from lattice_safetensors.adapter_files import AdapterFiles, adapter_files, probe
from lattice_safetensors.adapter_loader import open_adapter
from tests.safetensors.adapter_writer import write_bare, write_peft

CONFIG = "adapter_config.json"


def put(directory, *names):
    for name in names:
        (directory / name).write_bytes(b"")


@pytest.mark.parametrize("name", ["adapter_model.safetensors", "adapters.safetensors", "adapter_model.bin"])
def test_a_directory_matches_by_the_name_of_its_weights(tmp_path, name):
    put(tmp_path, CONFIG)
    assert probe(tmp_path) is None
    put(tmp_path, name)
    assert probe(tmp_path) == Match(50, name)


def test_a_safetensors_file_matches_and_nothing_else_does(tmp_path):
    put(tmp_path, "french.safetensors", "UPPER.SAFETENSORS", "french.gguf", "model.safetensors")
    assert probe(tmp_path / "french.safetensors") == Match(50, "french.safetensors")
    assert probe(tmp_path / "UPPER.SAFETENSORS") == Match(50, "UPPER.SAFETENSORS")
    assert probe(tmp_path / "french.gguf") is None
    assert probe(tmp_path / "absent.safetensors") is None
    assert probe(tmp_path) is None


def test_the_registered_probe_is_this_one():
    (spec,) = plugin.lattice_loaders()
    assert resolve(spec.adapter_probe) is probe


def test_the_loader_opens_adapters(loader, tmp_path):
    assert loader.open_adapter(write_peft(tmp_path)).format == "PEFT"


def test_opening_imports_no_numpy_and_probing_not_even_json(tmp_path):
    code = (
        "import sys; from pathlib import Path; from lattice_safetensors.adapter_files import probe; "
        f"path = Path({str(write_peft(tmp_path))!r}); probe(path); print('json' in sys.modules); "
        "from lattice_safetensors.adapter_loader import open_adapter; open_adapter(path).updates(); "
        "print('numpy' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["False", "False"]


def test_a_file_goes_with_the_configuration_beside_it(tmp_path):
    file = write_bare(tmp_path)
    assert adapter_files(file) == AdapterFiles(file, None)
    put(tmp_path, CONFIG)
    assert adapter_files(file) == AdapterFiles(file, tmp_path / CONFIG)


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ((), "holds neither adapter_model.safetensors nor adapters.safetensors"),
        (
            ("adapter_model.bin", CONFIG),
            "adapter_model.bin is a pickle, .* never opened; load the adapter with PEFT and save it",
        ),
        (("adapters.safetensors",), "adapter_config.json is missing; it holds the adapter's scale"),
        (("adapters.safetensors", "adapter_model.safetensors", CONFIG), "holds both adapter_model.safetensors and adapters"),
    ],
)
def test_a_directory_that_cannot_be_opened_says_why(tmp_path, names, said):
    put(tmp_path, *names)
    with pytest.raises(ModelError, match=said) as raised:
        open_adapter(tmp_path)
    assert raised.value.message.startswith(f"{tmp_path}: ")


def test_a_missing_path_and_an_empty_file_are_errors(tmp_path):
    with pytest.raises(ModelError, match="absent: no such file or directory"):
        open_adapter(tmp_path / "absent")
    put(tmp_path, "empty.safetensors")
    with pytest.raises(ModelError, match=r"empty.safetensors: is incomplete: 0 bytes"):
        open_adapter(tmp_path / "empty.safetensors")


def test_a_model_is_no_adapter(tmp_path):
    tensors = {"model.layers.0.self_attn.q_proj.weight": ("F32", (1, 1), bytes(4))}
    with pytest.raises(ModelError, match=r"q_proj.weight' is a module's whole weight"):
        open_adapter(write_bare(tmp_path, tensors))
