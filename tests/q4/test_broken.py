"""Every broken directory is refused with one line that names the file and the cause."""

import pytest

from lattice_core.errors import ModelError
from lattice_q4.model_files import probe
from tests.q4.broken import BROKEN, FOUND_AFTER_OPENING, FOUND_WHEN_READ

FOUND_AT_OPENING = sorted(set(BROKEN) - FOUND_WHEN_READ - FOUND_AFTER_OPENING)


def check(refused, expected, directory):
    assert expected in refused.value.message
    assert "\n" not in refused.value.message
    assert str(directory) in refused.value.message


@pytest.fixture
def directory(tmp_path):
    """A place inside another one, so that what leaves it is still the test's own."""
    (tmp_path / "model").mkdir()
    return tmp_path / "model"


@pytest.mark.parametrize("name", FOUND_AT_OPENING)
def test_a_broken_directory_is_refused_when_it_is_opened(directory, loader, name):
    expected = BROKEN[name](directory)
    with pytest.raises(ModelError) as refused:
        loader.open(directory)
    check(refused, expected, directory)


@pytest.mark.parametrize("name", sorted(FOUND_WHEN_READ))
def test_damaged_numbers_are_found_when_their_tensor_is_read(directory, loader, name):
    expected = BROKEN[name](directory)
    checkpoint = loader.open(directory)
    refusals = []
    for tensor in checkpoint.tensors():
        try:
            checkpoint.read(tensor)
        except ModelError as error:
            refusals.append(error.message)
    assert len(refusals) == 1
    assert refusals[0].startswith(f"{directory}/{expected}")
    assert "\n" not in refusals[0]


@pytest.mark.parametrize("name", sorted(BROKEN))
def test_a_broken_directory_is_still_taken_for_a_model_of_this_format(directory, name):
    BROKEN[name](directory)
    assert probe(directory) is not None


def test_a_missing_tokenizer_is_an_error_when_it_is_asked_for(directory, loader):
    expected = BROKEN["missing_tokenizer"](directory)
    checkpoint = loader.open(directory)
    with pytest.raises(ModelError) as refused:
        _ = checkpoint.tokenizer_json
    check(refused, expected, directory)
