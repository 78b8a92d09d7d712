"""Byte-level BPE (``tokenizer.ggml.model`` is ``gpt2``): words are cut, their bytes merged by the ranks of the file.

Must not know roles of tokens.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from lattice_gguf.pre_tokenizers import PRE_TOKENIZERS, pre_tokenizer_names
from lattice_gguf.tokenizer_fields import TokenizerFields, bpe
from lattice_gguf.vocabulary import PREFIX

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lattice_gguf.metadata import Metadata
    from lattice_gguf.vocabulary import TokenList

DEFAULT_IDS: Mapping[str, int] = {}
_LOG = logging.getLogger("lattice.gguf")


def read_fields(metadata: Metadata, tokens: TokenList) -> TokenizerFields:
    """The fields for this file; raises ``ModelError`` for an unknown pre-tokenizer or a merge of no tokens."""
    key = f"{PREFIX}.pre"
    if key not in metadata:
        _LOG.warning("%s: does not name its pre-tokenizer; words are cut by the old default", metadata.path)
    name = metadata.text(key, default="default")
    if name not in PRE_TOKENIZERS:
        metadata.fail(f"pre-tokenizer {name!r} is not supported (supported: {pre_tokenizer_names()})")
    pre_tokenizer = PRE_TOKENIZERS[name]
    vocabulary = {text: token_id for token_id, text in enumerate(tokens.texts)}
    return TokenizerFields(
        model=bpe(vocabulary, _merges(metadata, vocabulary), whole_words=pre_tokenizer.whole_words, byte_fallback=False),
        decoder={"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        normalizer=pre_tokenizer.normalizer,
        pre_tokenizer=pre_tokenizer.json(),
        adds_bos=pre_tokenizer.adds_bos,
    )


def _merges(metadata: Metadata, vocabulary: Mapping[str, int]) -> list[list[str]]:
    merges = []
    for number, merge in enumerate(metadata.strings(f"{PREFIX}.merges")):
        left, _, right = merge.partition(" ")
        if left not in vocabulary or right not in vocabulary or left + right not in vocabulary:
            metadata.fail(f"merge {number} ({merge!r}) is not made of tokens of the vocabulary")
        merges.append([left, right])
    return merges
