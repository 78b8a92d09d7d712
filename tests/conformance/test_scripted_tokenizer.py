from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from lattice_conformance.scripted_tokenizer import CONTROL_TOKENS, TOKENIZER_SIZE, text_of, tokenizer_json

TOKENIZER = Tokenizer.from_str(tokenizer_json().decode())


@given(st.text(st.characters(exclude_categories=["Cs"])).filter(lambda text: "<|" not in text))
def test_a_token_is_a_byte(text):
    assert TOKENIZER.encode(text, add_special_tokens=False).ids == list(text.encode())
    assert TOKENIZER.decode(list(text.encode())) == text
    assert text_of(text.encode()) == text


def test_every_byte_and_control_token_has_an_id():
    assert TOKENIZER.get_vocab_size(with_added_tokens=True) == TOKENIZER_SIZE == 259
    assert sorted(TOKENIZER.get_vocab(with_added_tokens=True).values()) == list(range(TOKENIZER_SIZE))


def test_control_tokens_are_parsed_and_written_out():
    text = "<|im_start|>user\nhi<|im_end|><|endoftext|>"
    ids = TOKENIZER.encode(text, add_special_tokens=False).ids
    assert set(CONTROL_TOKENS) < set(ids)
    assert text_of(ids) == text
