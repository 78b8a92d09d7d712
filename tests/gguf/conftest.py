"""Fixtures of the GGUF tests."""

import pytest

from lattice_core.descriptors import Settings
from lattice_gguf.loader import GgufLoader
from tests.gguf import gguf_writer, tiny_llama


@pytest.fixture
def loader():
    return GgufLoader(Settings())


@pytest.fixture
def open_model(tmp_path, loader):
    """Writes the tiny model, with changes, and opens it."""

    def open_changed(metadata=None, tensors=None, **options):
        path = tmp_path / "tiny.gguf"
        metadata = tiny_llama.metadata() if metadata is None else metadata
        tensors = tiny_llama.tensors() if tensors is None else tensors
        path.write_bytes(gguf_writer.document(metadata, tensors, **options))
        return loader.open(path)

    return open_changed
