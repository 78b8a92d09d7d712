"""Fixtures of the GGUF tests."""

import pytest

from lattice_core.descriptors import Settings
from lattice_gguf.loader import GgufLoader
from tests.gguf import gguf_writer, qwen_conversion, tiny_llama


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


@pytest.fixture
def open_converted(open_model):
    """Writes a model in Hugging Face notation as a file of one tensor type, with changes, and opens it."""

    def open_changed(model, kind="F32", metadata=None, tensors=None):
        pairs = qwen_conversion.metadata(model) | (metadata or {})
        stored = qwen_conversion.tensors(model, kind) | (tensors or {})
        kept = [{name: value for name, value in found.items() if value is not None} for found in (pairs, stored)]
        return open_model(*kept)

    return open_changed
