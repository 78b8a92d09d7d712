"""Owns the vocabulary of the scripted model: one token per byte (id == byte) and three control tokens.

Knows nothing of scripts and models. Byte-level means that a character outside ASCII is several tokens, so every reply with
one exercises the engine's detokeniser.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

END_OF_TEXT_ID = 256
IM_START_ID = 257
IM_END_ID = 258
CONTROL_TOKENS = {END_OF_TEXT_ID: "<|endoftext|>", IM_START_ID: "<|im_start|>", IM_END_ID: "<|im_end|>"}
TOKENIZER_SIZE = 256 + len(CONTROL_TOKENS)


def text_of(ids: Iterable[int]) -> str:
    """The text of ids, control tokens written out; what is no UTF-8 becomes U+FFFD, ids beyond the vocabulary nothing."""
    parts = (CONTROL_TOKENS.get(i, "").encode() if i >= END_OF_TEXT_ID else bytes((i,)) for i in ids if i >= 0)
    return b"".join(parts).decode(errors="replace")


def tokenizer_json() -> bytes:
    """The tokenizer in the JSON format of the ``tokenizers`` library: byte-level BPE without merges."""
    added = [
        {
            "id": i,
            "content": content,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for i, content in CONTROL_TOKENS.items()
    ]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    document: dict[str, Any] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {character: byte for byte, character in enumerate(_byte_characters())},
            "merges": [],
        },
    }
    return json.dumps(document, ensure_ascii=False).encode()


def _byte_characters() -> list[str]:
    """The visible character that byte-level BPE writes for each byte (the table that GPT-2's tokenizer introduced).

    Printable Latin-1 bytes stand for themselves, the others for the characters from U+0100 on, in order.
    """
    visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = iter(range(0x100, 0x200))
    return [chr(byte if byte in visible else next(hidden)) for byte in range(256)]
