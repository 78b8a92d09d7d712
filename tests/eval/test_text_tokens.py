import pytest

from lattice_conformance.scripted_tokenizer import IM_START_ID
from lattice_core.errors import ModelError, UsageError
from lattice_core.tokenizer import Tokenizer
from lattice_eval.text_tokens import read_text, tokenize
from tests.eval.site.counting_plugin import CountingCheckpoint

BOS = {"bos_token": "<|im_start|>"}


def tokens(text, config, **told):
    checkpoint = CountingCheckpoint({"tokenizer_config": config, **told})
    return tokenize(text, Tokenizer.from_checkpoint(checkpoint), config)


def test_a_text_begins_with_no_token_of_its_own_unless_the_tokenizer_adds_one():
    assert tokens("ab", BOS).ids == (97, 98)
    assert tokens("ab", {}).bos is None


def test_the_configuration_of_the_tokenizer_decides():
    assert tokens("ab", BOS | {"add_bos_token": True}).ids == (IM_START_ID, 97, 98)
    assert tokens("ab", BOS | {"add_bos_token": False}, post_bos=True).ids == (97, 98)


def test_without_it_the_post_processor_does():
    found = tokens("ab", BOS, post_bos=True)
    assert (found.ids, found.bos) == ((IM_START_ID, 97, 98), IM_START_ID)


def test_a_token_that_is_asked_for_and_not_named_is_an_error():
    with pytest.raises(ModelError, match="add_bos_token, but bos_token None is no token"):
        tokens("ab", {"add_bos_token": True})


def test_control_tokens_in_a_text_are_text():
    assert IM_START_ID not in tokens("a<|im_start|>b", BOS).ids


def test_line_ends_are_kept_as_they_are(tmp_path):
    file = tmp_path / "text"
    file.write_bytes(b"a\r\nb\n\xc3\xa9")
    assert read_text(str(file)) == "a\r\nb\n\u00e9"


def test_the_first_byte_that_is_not_utf_8_is_named(tmp_path):
    file = tmp_path / "text"
    file.write_bytes(b"abc\xc3\xa9\xffd")
    with pytest.raises(UsageError, match=r"byte 5 \(0xff\) is not UTF-8"):
        read_text(str(file))


def test_a_file_that_cannot_be_read_is_an_error_of_usage(tmp_path):
    with pytest.raises(UsageError, match="cannot be read: No such file or directory"):
        read_text(str(tmp_path / "absent"))
    with pytest.raises(UsageError, match="cannot be read: Is a directory"):
        read_text(str(tmp_path))
