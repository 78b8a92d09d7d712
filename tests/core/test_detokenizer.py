"""Streamed text equals the full decoding, for byte-level, byte-fallback and word-piece vocabularies."""

import random
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import decoders, models, normalizers, pre_tokenizers

from lattice_core.detokenizer import DetokenizerFactory
from lattice_core.tokenizer import Tokenizer

DATA = Path(__file__).parent.parent / "data"


def byte_level() -> Tokenizer:
    return Tokenizer((DATA / "tiny-llama-tied-f32" / "tokenizer.json").read_bytes())


def byte_fallback() -> Tokenizer:
    """A SentencePiece-like BPE: blanks as U+2581, unknown characters as byte tokens, the first blank stripped."""
    words = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "a", "b", "▁a", "日", "▁▁", "\n"]
    model = models.BPE(
        {word: i for i, word in enumerate(words)}, [("▁", "a"), ("▁", "▁")], unk_token="<unk>", byte_fallback=True
    )
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens(["<s>", "</s>"])
    return Tokenizer(tokenizer.to_str().encode())


def word_piece() -> Tokenizer:
    words = ["[UNK]", "un", "##aff", "##able", "the", "日", "##本", ","]
    tokenizer = tokenizers.Tokenizer(models.WordPiece({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return Tokenizer(tokenizer.to_str().encode())


KINDS = {"byte level": byte_level(), "byte fallback": byte_fallback(), "word piece": word_piece()}
FACTORIES = {kind: DetokenizerFactory(tokenizer) for kind, tokenizer in KINDS.items()}


def stream(kind: str, ids: list[int]) -> list[str]:
    detokenizer = FACTORIES[kind].make()
    return [*(detokenizer.push((token,)) for token in ids), detokenizer.finish()]


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=400, deadline=None)
@given(data=st.data())
def test_pieces_of_any_token_sequence_join_to_the_full_decoding(kind, data):
    size = KINDS[kind].size
    ids = data.draw(st.lists(st.integers(0, size - 1), max_size=24))
    assert "".join(stream(kind, ids)) == KINDS[kind].decode(ids)


@pytest.mark.parametrize("kind", ["byte level", "byte fallback"])
def test_text_comes_back_whole_and_no_piece_holds_half_a_character(kind):
    text = " leading blank, 日本, 👩‍👩‍👧, naïve\n\n    x"
    ids = list(KINDS[kind].encode(text, control=False))
    pieces = stream(kind, ids)
    assert "".join(pieces) == KINDS[kind].decode(ids)
    assert not any("\ufffd" in piece for piece in pieces)


def test_byte_level_vocabularies_are_recognised_by_trying():
    assert {kind: factory.byte_level for kind, factory in FACTORIES.items()} == {
        "byte level": True,
        "byte fallback": False,
        "word piece": False,
    }


def test_an_incomplete_character_at_the_end_becomes_one_replacement():
    tokenizer = KINDS["byte level"]
    ids = list(tokenizer.encode("日", control=False))
    assert len(ids) > 1
    pieces = stream("byte level", ids[:-1])
    assert ("".join(pieces[:-1]), pieces[-1]) == ("", "\ufffd")


def test_ids_outside_the_tokenizer_give_no_text():
    assert "".join(stream("byte level", [600, 72, 100_000])) == KINDS["byte level"].decode([72])


def test_work_for_a_token_does_not_grow_with_the_length_of_the_output():
    class Counting:
        def __init__(self, inner):
            self.inner, self.special_ids, self.document, self.size = inner, inner.special_ids, inner.document, inner.size
            self.longest = 0

        def token(self, token_id):
            return self.inner.token(token_id)

        def decode(self, ids):
            self.longest = max(self.longest, len(ids))
            return self.inner.decode(ids)

    counting = Counting(KINDS["word piece"])
    detokenizer = DetokenizerFactory(counting).make()
    choose = random.Random(1)
    for _ in range(3000):
        detokenizer.push((choose.randrange(counting.size),))
    assert counting.longest < 16
