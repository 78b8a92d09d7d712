"""Quantised copies of every model of the data are served by the command line, and more bits keep more of a model."""

import json
import subprocess
import sys

import numpy as np
import pytest

from lattice_core.descriptors import Settings
from lattice_core.types import Limits, RowInput, Want
from lattice_mlx.backend import MlxBackend
from lattice_safetensors.loader import SafetensorsLoader
from tests.q4.q4_directory import DATA

MODELS = tuple(sorted(path.parent.name for path in DATA.glob("tiny-*/reference.npz")))
LATTICE = (sys.executable, "-m", "lattice_core")
PROMPT = tuple(range(3, 40))


def run(*arguments):
    done = subprocess.run([*LATTICE, *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def logits_of(path):
    checkpoint = SafetensorsLoader(Settings()).open(path)
    model = MlxBackend(Settings()).load(checkpoint, Limits(dtype="float32"), lambda *_: None)
    return model.read_logits(model.forward([RowInput(model.new_state(), PROMPT, Want.ALL)]).array)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("kind", ["q4", "mlx"])
def test_a_quantised_directory_serves(tmp_path, model, kind):
    run("quantize", DATA / model, tmp_path / "copy", "--format", kind, "--group-size", "32")
    answer = run("--model", tmp_path / "copy", "--prompt", "Hello", "--max-tokens", "8", "--temperature", "0", "--json")
    last = json.loads(answer.splitlines()[-1].removeprefix("@@lattice "))
    assert last["done"]
    assert 1 <= last["gen_tokens"] <= 8


def test_quality_grows_with_bits(tmp_path):
    original, errors = logits_of(DATA / "tiny-llama-tied-f32"), []
    for bits in (2, 3, 4, 5, 6, 8):
        copy = tmp_path / str(bits)
        run("quantize", DATA / "tiny-llama-tied-f32", copy, "--format", "mlx", "--bits", bits, "--group-size", "32")
        errors.append(np.abs(logits_of(copy) - original).mean())
    assert errors == sorted(errors, reverse=True)
