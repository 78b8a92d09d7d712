"""The tokenizers that are built from metadata."""

import json

import numpy as np
import pytest
from tokenizers import Tokenizer
from tokenizers.pre_tokenizers import PreTokenizer

from lattice_core.errors import ModelError
from lattice_gguf.pre_tokenizers import PRE_TOKENIZERS
from tests.gguf import tiny_llama


@pytest.fixture
def tokenizer_of(open_model):
    def built(**changes):
        return Tokenizer.from_str(open_model(tiny_llama.metadata(**changes)).tokenizer_json.decode())

    return built


def test_tokens_keep_their_ids(tokenizer_of):
    tokenizer = tokenizer_of()
    assert tokenizer.get_vocab_size(with_added_tokens=True) == len(tiny_llama.TOKENS)
    assert tokenizer.get_vocab(with_added_tokens=True) == {text: number for number, text in enumerate(tiny_llama.TOKENS)}


def test_merges_follow_their_ranks(tokenizer_of):
    assert tokenizer_of().encode("hello hell").tokens == ["hello", "Ġ", "hell"]


def test_control_tokens_are_special_and_user_defined_ones_are_not(tokenizer_of):
    tokenizer = tokenizer_of()
    ids = tokenizer.encode("<|start|>he<think>he<|end|>").ids
    assert ids == [1, 259, 2, 259, 0]
    assert tokenizer.decode(ids, skip_special_tokens=True) == "he<think>he"


def test_a_token_with_a_role_is_special_even_if_its_type_is_normal(tokenizer_of):
    tokenizer = tokenizer_of(tokenizer__ggml__token_type=None)
    assert tokenizer.encode("he<|end|>").ids == [259, 0]
    assert tokenizer.decode([259, 0], skip_special_tokens=True) == "he"


def test_any_text_survives_the_round_trip(tokenizer_of):
    tokenizer = tokenizer_of()
    random = np.random.default_rng(4)
    for _ in range(200):
        points = random.choice([random.integers(1, 128), random.integers(128, 0xD800), random.integers(0x10000, 0x110000)], 12)
        text = "".join(map(chr, points))
        assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == text


def test_the_begin_of_sequence_token_is_put_in_front_only_where_the_file_says_so(tokenizer_of):
    assert tokenizer_of().encode("he").ids == [259]
    assert tokenizer_of(tokenizer__ggml__add_bos_token=("bool", False)).encode("he").ids == [259]
    tokenizer = tokenizer_of(tokenizer__ggml__add_bos_token=("bool", True))
    assert tokenizer.encode("he").ids == [1, 259]
    assert tokenizer.encode("he", "he").ids == [1, 259, 1, 259]
    assert tokenizer.encode("he", add_special_tokens=False).ids == [259]


def test_a_file_of_llama_3_that_does_not_say_it_begins_with_the_token(tokenizer_of):
    llama3 = ("str", "llama-bpe")
    assert tokenizer_of(tokenizer__ggml__pre=llama3).encode("he").ids == [1, 259]
    assert tokenizer_of(tokenizer__ggml__pre=llama3, tokenizer__ggml__add_bos_token=("bool", False)).encode("he").ids == [259]


def test_llama_3_takes_a_whole_word_without_merges(tokenizer_of):
    merges = ("[str]", ["h e", "l l", "he ll"])
    assert tokenizer_of(tokenizer__ggml__merges=merges).encode("hello").tokens == ["hell", "o"]
    tokenizer = tokenizer_of(tokenizer__ggml__pre=("str", "llama-bpe"), tokenizer__ggml__merges=merges)
    assert tokenizer.encode("hello", add_special_tokens=False).tokens == ["hello"]


def test_roles_stand_in_the_configuration(open_model):
    roles = {"padding": 2, "unknown": 0, "eot": 2, "eom": 0}
    keys = {f"tokenizer.ggml.{role}_token_id": ("u32", number) for role, number in roles.items()}
    checkpoint = open_model(tiny_llama.metadata() | keys)
    ids = {"bos_token_id": 1, "eos_token_id": [0, 2], "pad_token_id": 2}
    assert checkpoint.generation_config == ids
    assert {key: checkpoint.config[key] for key in ids} == ids
    texts = {"bos_token": "<|start|>", "eos_token": "<|end|>", "unk_token": "<|end|>", "pad_token": "<think>"}
    assert checkpoint.tokenizer_config == texts | {"add_bos_token": False}


def test_the_template_is_handed_out_as_it_is(open_model):
    assert open_model().chat_template is None
    template = "{% for m in messages %}{{ m }}{% endfor %}"
    assert open_model(tiny_llama.metadata() | {"tokenizer.chat_template": ("str", template)}).chat_template == template


def test_an_empty_token_gets_a_name(tokenizer_of):
    tokens = [*tiny_llama.TOKENS, ""]
    tokenizer = tokenizer_of(tokenizer__ggml__tokens=("[str]", tokens), tokenizer__ggml__token_type=None)
    assert tokenizer.id_to_token(len(tokens) - 1) == f"[EMPTY_{len(tokens) - 1}]"


def test_a_file_that_names_no_pre_tokenizer_is_read_with_a_warning(tokenizer_of, caplog):
    assert tokenizer_of(tokenizer__ggml__pre=None).encode("hello").tokens == ["hello"]
    (record,) = caplog.records
    assert (record.levelname, record.name) == ("WARNING", "lattice.gguf")
    assert "does not name its pre-tokenizer" in record.getMessage()


BROKEN = {
    "model missing": ({"model": None}, "'tokenizer.ggml.model' is missing"),
    "model": ({"model": ("str", "t5")}, r"tokenizer model 't5' is not supported \(supported: gpt2, llama\)"),
    "pre-tokenizer": (
        {"pre": ("str", "klingon")},
        r"pre-tokenizer 'klingon' is not supported \(supported: codeshell, dbrx, de",
    ),
    "tokens missing": ({"tokens": None}, "'tokenizer.ggml.tokens' is missing"),
    "tokens empty": ({"tokens": ("[str]", [])}, "'tokenizer.ggml.tokens' is empty"),
    "tokens of numbers": ({"tokens": ("[u32]", [1])}, "'tokenizer.ggml.tokens' is an array of uint32, not an array of strings"),
    "tokens nested": ({"tokens": ("[[str]]", [["a"]])}, "'tokenizer.ggml.tokens' is of type list, not an array of strings"),
    "token twice": ({"tokens": ("[str]", [*tiny_llama.TOKENS[:-1], "he"])}, "token 'he' stands twice in the vocabulary"),
    "types": ({"token_type": ("[i32]", [1])}, "'tokenizer.ggml.token_type' has 1 elements for 264 tokens"),
    "merges missing": ({"merges": None}, "'tokenizer.ggml.merges' is missing"),
    "merge of no token": ({"merges": ("[str]", ["h e", "h zz"])}, r"merge 1 \('h zz'\) is not made of tokens"),
    "merge without parts": ({"merges": ("[str]", ["he"])}, r"merge 0 \('he'\) is not made of tokens"),
    "merge to no token": ({"merges": ("[str]", ["o o"])}, r"merge 0 \('o o'\) is not made of tokens"),
    "role": ({"eos_token_id": ("u32", 264)}, "'tokenizer.ggml.eos_token_id' is 264, the vocabulary has 264 tokens"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_tokenizer_that_cannot_be_built_is_one_clear_error(open_model, case):
    changes, message = BROKEN[case]
    with pytest.raises(ModelError, match=message) as caught:
        open_model(tiny_llama.metadata(**{f"tokenizer__ggml__{key}": value for key, value in changes.items()}))
    assert "tiny.gguf: " in str(caught.value)


def words(name, text):
    """How a pre-tokenizer cuts ``text``, as text."""
    document = {
        "version": "1.0",
        "added_tokens": [],
        "pre_tokenizer": PRE_TOKENIZERS[name].json(),
        "model": {"type": "BPE", "vocab": {}, "merges": []},
    }
    pre_tokenizer = Tokenizer.from_str(json.dumps(document)).pre_tokenizer
    assert isinstance(pre_tokenizer, PreTokenizer)
    return [text[start:stop] for _, (start, stop) in pre_tokenizer.pre_tokenize_str(text)]


TEXT = "I'LL pay 12345 now!!\n\n  don't\tHelloWorld  "
CUTS = {
    "gpt-2": "I|'|LL| pay| 12345| now|!!|\n\n | don|'t|\t|HelloWorld|  ",
    "smollm": "I|'|LL| pay| |1|2|3|4|5| now|!!|\n\n | don|'t|\t|HelloWorld|  ",
    "llama-bpe": "I|'LL| pay| |123|45| now|!!\n\n| | don|'t|\tHelloWorld|  ",
    "qwen2": "I|'LL| pay| |1|2|3|4|5| now|!!\n\n| | don|'t|\tHelloWorld|  ",
    "tekken": "I|'LL| pay| |1|2|3|4|5| now|!!\n\n| | don|'t|\tHello|World|  ",
    "gpt-4o": "I'LL| pay| |123|45| now|!!\n\n| | don't|\tHello|World|  ",
    "deepseek-coder": "I|'|LL| pay| |1|2|3|4|5| now|!!|\n|\n| | don|'|t|\tHelloWorld|  ",
    "default": "I|'|LL| pay| |123|45| now|!!|\n\n | don|'|t|\t|HelloWorld|  ",
}


@pytest.mark.parametrize("name", CUTS)
def test_words_are_cut_by_the_rule_that_the_file_names(name):
    assert "|".join(words(name, TEXT)) == CUTS[name]


@pytest.mark.parametrize("name", PRE_TOKENIZERS)
def test_every_rule_keeps_all_of_the_text(name):
    text = TEXT + " żółć 世界 한국어 🙂🙂 \r\n¼ $1.5+2 e\u0301a"
    assert "".join(words(name, text)) == text


def test_qwen_keeps_combining_marks_with_their_letters_only_in_its_newer_rule():
    assert words("qwen2", "e\u0301a") == ["e", "\u0301a"]
    assert words("qwen35", "e\u0301a") == ["e\u0301a"]
