"""A model opened by this loader computes what other implementations compute, whole or in shards, plain or packed."""

import numpy as np
import pytest

from lattice_core.descriptors import Settings
from lattice_core.types import Limits, RowInput, Want
from lattice_mlx.backend import MlxBackend
from tests.safetensors.damage import DATA
from tests.safetensors.safetensors_writer import split

NAMES = ["tiny-llama-tied-bf16", "tiny-llama3rope-untied-bf16", "tiny-qwen3-tied-f32", "mlx-llama-4bit", "mlx-qwen3-8bit"]


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("name", NAMES)
def test_logits_equal_the_reference(copied, loader, name, shards):
    directory = copied(name)
    if shards > 1:
        split(directory, shards)
    model = MlxBackend(Settings()).load(loader.open(directory), Limits(), lambda _done, _total: None)
    with np.load(DATA / name / "reference.npz") as archive:
        tokens, expected = tuple(archive["prompt_ids"].tolist()), archive["logits"]
    logits = model.forward([RowInput(model.new_state(), tokens, Want.ALL)]).array
    model.launch([logits])
    np.testing.assert_allclose(model.read_logits(logits), expected, atol=1e-3)
