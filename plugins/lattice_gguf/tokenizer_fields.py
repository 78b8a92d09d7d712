"""The part of ``tokenizer.json`` in which the kinds of tokenizers differ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping


@frozen
class TokenizerFields:
    """Fields of ``tokenizer.json``; ``adds_bos`` is what holds where the file does not say it."""

    model: Mapping[str, Any]
    decoder: Mapping[str, Any]
    normalizer: Mapping[str, Any] | None
    pre_tokenizer: Mapping[str, Any] | None
    adds_bos: bool


def bpe(vocabulary: Mapping[str, int], merges: list[list[str]], *, whole_words: bool, byte_fallback: bool) -> dict[str, Any]:
    """The field ``model`` for byte pair encoding."""
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": byte_fallback,
        "ignore_merges": whole_words,
        "vocab": dict(vocabulary),
        "merges": merges,
    }
