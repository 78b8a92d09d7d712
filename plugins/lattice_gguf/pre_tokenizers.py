"""How text is cut into words before byte-level BPE, by the name in ``tokenizer.ggml.pre``.

Owns the table of names. The expressions are those of the models' own ``tokenizer.json`` where they are known, and else
those by which llama.cpp, whose converter writes the names, reads the file. Must not know vocabularies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_LINES_AND_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_LINES_AND_SPACES}"
_QWEN2 = rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_LINES_AND_SPACES}"
_QWEN35 = (
    rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
    rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_LINES_AND_SPACES}"
)
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"


def _cased(ending: str, numbers: str) -> str:
    """Words that begin a new one at an upper-case letter, as ``tekken`` and ``gpt-4o`` cut them."""
    return (
        rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{ending}|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{ending}"
        rf"|{numbers}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_LINES_AND_SPACES}"
    )


@frozen
class PreTokenizer:
    """Steps in the JSON notation of the ``tokenizers`` library.

    ``whole_words``: a word that is a token is taken as it is, without merges. ``adds_bos``: what holds for a file that does
    not say whether text begins with the beginning-of-sequence token.
    """

    steps: tuple[Mapping[str, Any], ...]
    normalizer: Mapping[str, Any] | None = None
    whole_words: bool = False
    adds_bos: bool = False

    def json(self) -> dict[str, Any]:
        """The field ``pre_tokenizer`` of ``tokenizer.json``."""
        return {"type": "Sequence", "pretokenizers": [dict(step) for step in self.steps]}


def _split(pattern: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def _byte_level(*, words: bool) -> dict[str, Any]:
    """Bytes as visible characters; with ``words`` cut by the expression of GPT-2 first."""
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": words}


_NFC = {"type": "NFC"}
_DIGITS = {"type": "Digits", "individual_digits": True}
_BYTES, _GPT2_WORDS = _byte_level(words=False), _byte_level(words=True)

_GPT2 = PreTokenizer((_GPT2_WORDS,))
_SINGLE_DIGITS = PreTokenizer((_DIGITS, _GPT2_WORDS))
_QWEN2_WORDS = PreTokenizer((_split(_QWEN2), _BYTES), normalizer=_NFC)

PRE_TOKENIZERS: Mapping[str, PreTokenizer] = {
    # What llama.cpp does for files that were converted before the key existed.
    "default": PreTokenizer(
        (
            _split(r"[\p{P}\$\+<=>\^~\|]+"),
            _split(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"),
            _split(r"\p{N}+"),
            _split(r"[0-9][0-9][0-9]"),
            _BYTES,
        )
    ),
    "gpt-2": _GPT2,
    "gpt2": _GPT2,
    "phi-2": _GPT2,
    "smollm": _SINGLE_DIGITS,
    "starcoder": _SINGLE_DIGITS,
    "refact": _SINGLE_DIGITS,
    "codeshell": _SINGLE_DIGITS,
    "llama3": PreTokenizer((_split(_LLAMA3), _BYTES), whole_words=True, adds_bos=True),
    "llama-v3": PreTokenizer((_split(_LLAMA3), _BYTES), whole_words=True, adds_bos=True),
    "llama-bpe": PreTokenizer((_split(_LLAMA3), _BYTES), whole_words=True, adds_bos=True),
    "smaug-bpe": PreTokenizer((_split(_LLAMA3), _BYTES)),
    "dbrx": PreTokenizer((_split(_LLAMA3), _BYTES)),
    "qwen2": _QWEN2_WORDS,
    "deepseek-r1-qwen": _QWEN2_WORDS,
    "qwen35": PreTokenizer((_split(_QWEN35), _BYTES), normalizer=_NFC),
    "tekken": PreTokenizer((_split(_cased("", r"\p{N}")), _BYTES), whole_words=True, adds_bos=True),
    "gpt-4o": PreTokenizer((_split(_cased(f"{_CONTRACTIONS}?", r"\p{N}{1,3}")), _BYTES)),
    "deepseek-coder": PreTokenizer(
        (
            _split(r"[\r\n]"),
            _split(r"\s?\p{L}+"),
            _split(r"\s?\p{P}+"),
            _split("[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"),
            _DIGITS,
            _BYTES,
        )
    ),
}


def pre_tokenizer_names() -> str:
    """All names, for an error message."""
    return ", ".join(sorted(PRE_TOKENIZERS))
