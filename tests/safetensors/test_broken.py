"""Every broken directory is refused with one line that names the file and the cause."""

import pytest

from lattice_core.errors import ModelError
from lattice_safetensors.loader import SafetensorsLoader
from lattice_safetensors.model_files import probe
from tests.safetensors.broken import BROKEN, FOUND_AFTER_OPENING

FOUND_AT_OPENING = sorted(set(BROKEN) - FOUND_AFTER_OPENING)


@pytest.mark.parametrize("name", FOUND_AT_OPENING)
def test_a_broken_directory_is_refused_when_it_is_opened(tmp_path, name):
    expected = BROKEN[name](tmp_path)
    with pytest.raises(ModelError) as refused:
        SafetensorsLoader(None).open(tmp_path)
    assert expected in refused.value.message
    assert "\n" not in refused.value.message
    assert str(tmp_path) in refused.value.message


@pytest.mark.parametrize("name", sorted(FOUND_AFTER_OPENING))
def test_what_a_loader_cannot_know_is_left_to_those_who_can(tmp_path, name):
    BROKEN[name](tmp_path)
    checkpoint = SafetensorsLoader(None).open(tmp_path)
    assert all(checkpoint.read(tensor).data.nbytes for tensor in checkpoint.tensors())


@pytest.mark.parametrize("name", sorted(BROKEN))
def test_a_broken_directory_is_still_taken_for_a_model_of_this_format(tmp_path, name):
    BROKEN[name](tmp_path)
    assert probe(tmp_path) is not None


def test_a_missing_tokenizer_is_an_error_when_it_is_asked_for(tmp_path):
    expected = BROKEN["missing_tokenizer"](tmp_path)
    checkpoint = SafetensorsLoader(None).open(tmp_path)
    with pytest.raises(ModelError) as refused:
        _ = checkpoint.tokenizer_json
    assert expected in refused.value.message
