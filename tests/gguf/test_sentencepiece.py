"""SentencePiece BPE against its own rule: join the neighbours whose joined piece has the best score, leftmost first."""

import json
from itertools import pairwise

import numpy as np
import pytest
from tokenizers import Tokenizer

from lattice_core.errors import ModelError
from tests.gguf import tiny_llama

BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
SPACE = "\u2581"


def trained_pieces():
    """Single characters and pieces that random text would give: each joins two that stand before it."""
    random = np.random.default_rng(11)
    pieces = [SPACE, *"abcdé世"]
    while len(pieces) < 120:
        joined = pieces[random.integers(len(pieces))] + pieces[random.integers(len(pieces))]
        if joined not in pieces and len(joined) <= 6:
            pieces.append(joined)
    return pieces


PIECES = trained_pieces()
TOKENS = ["<unk>", "<s>", "</s>", *BYTES, *PIECES]
SCORES = [0.0] * 259 + [-float(rank) for rank in range(len(PIECES))]
TYPES = [2, 3, 3] + [6] * 256 + [1] * len(PIECES)


@pytest.fixture
def open_spm(open_model):
    def opened(**changes):
        keys = {
            "model": ("str", "llama"),
            "tokens": ("[str]", TOKENS),
            "scores": ("[f32]", SCORES),
            "token_type": ("[i32]", TYPES),
        }
        names = ("pre", "merges", "bos_token_id", "eos_token_id")
        metadata = tiny_llama.metadata(**{f"tokenizer__ggml__{name}": None for name in names})
        metadata |= {f"tokenizer.ggml.{key}": value for key, value in (keys | changes).items() if value is not None}
        tensors = tiny_llama.tensors(token_embd__weight=("F32", (512, 64), bytes(4 * 512 * 64)))
        return open_model(metadata, tensors)

    return opened


def built(checkpoint):
    return Tokenizer.from_str(checkpoint.tokenizer_json.decode())


def joined_by_score(text, prefix=SPACE):
    """Ids by the rule, one join at a time."""
    ids = {piece: number for number, piece in enumerate(TOKENS)}
    parts = list(prefix + text.replace(" ", SPACE))
    while True:
        joins = [(SCORES[ids[a + b]], -at) for at, (a, b) in enumerate(pairwise(parts)) if a + b in PIECES]
        if not joins:
            break
        at = -max(joins)[1]
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    found = []
    for part in parts:
        found += [ids[part]] if part in ids else [ids[f"<0x{byte:02X}>"] for byte in part.encode()]
    return found


def random_texts(count):
    random = np.random.default_rng(12)
    return ["".join(random.choice(list("abcdé世  xß🙂"), random.integers(1, 40))) for _ in range(count)]


def test_pieces_are_joined_by_score(open_spm):
    tokenizer = built(open_spm())
    for text in random_texts(300):
        assert tokenizer.encode(text, add_special_tokens=False).ids == joined_by_score(text), text


def test_text_survives_the_round_trip(open_spm):
    tokenizer = built(open_spm())
    for text in random_texts(300):
        assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False).ids) == text


def test_no_space_is_put_in_front_where_the_file_says_so(open_spm):
    tokenizer = built(open_spm(add_space_prefix=("bool", False)))
    for text in random_texts(50):
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        assert ids == joined_by_score(text, prefix="")
        assert tokenizer.decode(ids) == text


def test_roles_and_the_begin_of_sequence_have_the_defaults_of_the_format(open_spm):
    checkpoint = open_spm()
    assert (checkpoint.config["bos_token_id"], checkpoint.config["eos_token_id"]) == (1, 2)
    assert built(checkpoint).encode("a").ids[0] == 1
    assert built(open_spm(add_bos_token=("bool", False))).encode("a").ids[0] != 1


def test_control_pieces_never_arise_from_the_joins_of_text(open_spm):
    pieces = ["<", "s", ">", "<s", "s>"]
    checkpoint = open_spm(
        tokens=("[str]", [*TOKENS, *pieces]),
        scores=("[f32]", [*SCORES, *[-500.0] * len(pieces)]),
        token_type=("[i32]", [*TYPES, *[1] * len(pieces)]),
    )
    document = json.loads(checkpoint.tokenizer_json)
    document["added_tokens"] = []
    tokens = Tokenizer.from_str(json.dumps(document)).encode("a<s>", add_special_tokens=False).tokens
    assert tokens[-2:] == ["<s", ">"]


BROKEN = {
    "scores missing": ({"scores": None}, "'tokenizer.ggml.scores' is missing"),
    "scores": ({"scores": ("[f32]", [0.0])}, r"'tokenizer.ggml.scores' has 1 elements for [0-9]+ tokens"),
    "bytes": ({"tokens": ("[str]", [text.lower() for text in TOKENS])}, "the vocabulary has no piece '<0x0A>'"),
    "white space": ({"remove_extra_whitespaces": ("bool", True)}, "removes extra white space is not supported"),
    "a huge piece": ({"tokens": ("[str]", [*TOKENS[:-1], "a" * 600])}, "has 600 characters, more than 512"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_vocabulary_that_cannot_be_rebuilt_is_one_clear_error(open_spm, case):
    changes, message = BROKEN[case]
    with pytest.raises(ModelError, match=message):
        open_spm(**changes)
