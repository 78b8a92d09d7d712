"""Message text never acts as control; what a template says does; nothing is cut silently."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lattice_core.errors import ModelError
from lattice_core.tokenizer import Tokenizer

DATA = Path(__file__).parent.parent / "data"
DOCUMENT = json.loads((DATA / "tiny-llama-tied-f32" / "tokenizer.json").read_bytes())
TOKENIZER = Tokenizer(json.dumps(DOCUMENT).encode(), {"eos_token": "<|im_end|>", "bos_token": {"content": "<|im_start|>"}})
ADDED = {token["content"]: token["id"] for token in DOCUMENT["added_tokens"]}
LITERALS = [*ADDED, "\ufdd0", "\ufdd1", "\ufdd00\ufdd1"]


def control_ids(ids):
    return [token for token in ids if token in ADDED.values()]


@pytest.mark.parametrize("literal", ADDED)
def test_control_literals_of_a_raw_prompt_are_control(literal):
    assert control_ids(TOKENIZER.encode(f"a{literal}b", control=True)) == [ADDED[literal]]


@given(st.lists(st.one_of(st.sampled_from(LITERALS), st.text(max_size=8)), max_size=8).map("".join))
def test_escaped_text_never_becomes_control_and_reads_back_as_it_was(text):
    rendered = f"<|im_start|>user\n{TOKENIZER.escape(text)}<|im_end|>\n"
    ids = TOKENIZER.encode_escaped(rendered)
    assert control_ids(ids) == [ADDED["<|im_start|>"], ADDED["<|im_end|>"]]
    normal = TOKENIZER.decode(TOKENIZER.encode(text, control=False))
    assert TOKENIZER.decode(ids) == f"user\n{normal}\n"


@given(st.text(max_size=30))
def test_harmless_text_is_encoded_as_the_whole_template_would_be(text):
    rendered = f"<|im_start|>user\n{text}<|im_end|>\n"
    if any(literal in text for literal in LITERALS):
        return
    assert TOKENIZER.encode_escaped(rendered.replace(text, TOKENIZER.escape(text))) == TOKENIZER.encode(rendered, control=True)


def test_a_hidden_literal_beside_template_text_changes_only_itself():
    ids = TOKENIZER.encode_escaped(f"<|im_start|>user\nhi{TOKENIZER.escape('<|im_end|>')} there<|im_end|>\n")
    assert TOKENIZER.decode(ids) == "user\nhi<|im_end|> there\n"


def test_a_vocabulary_that_looks_whole_words_up_cannot_find_a_control_token_in_text():
    document = json.loads(json.dumps(DOCUMENT))
    document["model"]["ignore_merges"] = True
    document["model"]["vocab"] |= ADDED
    document["pre_tokenizer"] = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    tokenizer = Tokenizer(json.dumps(document).encode())
    assert control_ids(tokenizer.encode("<think>", control=False)) == []


def test_a_checkpoints_truncation_is_not_applied():
    document = dict(DOCUMENT, truncation={"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0})
    assert len(Tokenizer(json.dumps(document).encode()).encode("x " * 200, control=True)) >= 200


def test_a_prompt_that_begins_with_the_first_token_keeps_one():
    document = dict(
        DOCUMENT,
        post_processor={
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<|im_start|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
            "special_tokens": {
                "<|im_start|>": {"id": "<|im_start|>", "ids": [ADDED["<|im_start|>"]], "tokens": ["<|im_start|>"]}
            },
        },
    )
    tokenizer = Tokenizer(json.dumps(document).encode(), {"bos_token": "<|im_start|>"})
    assert tokenizer.encode("<|im_start|>x", control=True) == tokenizer.encode("x", control=True)
    assert control_ids(tokenizer.encode("x", control=True)) == [ADDED["<|im_start|>"]]


def test_end_of_sequence_ids_are_the_union_of_what_the_files_name():
    class Checkpoint:
        tokenizer_json = json.dumps(DOCUMENT).encode()
        tokenizer_config = {"eos_token": "<|im_end|>"}
        config = {"eos_token_id": 3, "text_config": {"eos_token_id": [4]}}
        generation_config = {"eos_token_id": [5, 6]}

    assert Tokenizer.from_checkpoint(Checkpoint()).eos_ids == {3, 4, 5, 6, ADDED["<|im_end|>"]}


def test_lone_surrogates_are_replaced_and_do_not_raise():
    assert "\ufffd" in TOKENIZER.decode(TOKENIZER.encode_escaped(TOKENIZER.escape("a\ud800b")))


def test_one_tokenizer_serves_many_threads():
    texts = [f"text {number} " * 50 for number in range(50)]
    expected = [TOKENIZER.encode(text, control=True) for text in texts]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda text: TOKENIZER.encode(text, control=True), texts)) == expected


def test_a_broken_tokenizer_is_one_error():
    with pytest.raises(ModelError, match=r"tokenizer\.json cannot be read"):
        Tokenizer(b"{}")
