"""Fixtures of the safetensors tests."""

import pytest

from lattice_core.descriptors import Settings
from lattice_safetensors.loader import SafetensorsLoader
from tests.safetensors import damage


@pytest.fixture
def loader():
    return SafetensorsLoader(Settings())


@pytest.fixture
def copied(tmp_path):
    """Copies a model of the test data into an empty directory."""

    def copy(name="tiny-llama-tied-bf16"):
        directory = tmp_path / name
        damage.copy(directory, name)
        return directory

    return copy
