"""Models of the tests, loaded once for the session; every test starts with a model that holds no states."""

import pytest

from lattice_core.descriptors import Settings
from lattice_core.types import Limits, RowInput, Want
from lattice_mlx.backend import MlxBackend
from lattice_safetensors.loader import SafetensorsLoader
from tests.mlx.naive_llama import DATA


def load_model(checkpoint, limits=None, **options):
    return MlxBackend(Settings(own=options)).load(checkpoint, limits or Limits(), lambda _done, _total: None)


@pytest.fixture(scope="session")
def loaded():
    """Loads a checkpoint with the given options."""
    return load_model


@pytest.fixture(scope="session")
def models():
    """The models of ``tests/data`` by name."""
    held = {}

    def get(name):
        if name not in held:
            held[name] = load_model(SafetensorsLoader(Settings()).open(DATA / name))
        held[name].reset()
        return held[name]

    return get


@pytest.fixture
def model(models):
    return models("tiny-llama-tied-f32")


@pytest.fixture(scope="session")
def feed():
    """``feed(model, state, tokens, want)``: one row alone, its logits as numpy."""

    def run(model, state, tokens, want=Want.ALL):
        logits = model.forward([RowInput(state, tuple(int(token) for token in tokens), want)]).array
        model.launch([logits])
        return model.read_logits(logits)

    return run
