"""The tokenizer of a GGUF file as the JSON that the ``tokenizers`` library reads.

Owns the choice by ``tokenizer.ggml.model`` and what both kinds share: added tokens and the beginning-of-sequence rule. A
rule to end text with the end-of-sequence token is left out on purpose: a prompt is text that goes on.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from attrs import frozen

from lattice_gguf import byte_level, sentencepiece
from lattice_gguf.vocabulary import PREFIX, read_tokens

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lattice_gguf.metadata import Metadata
    from lattice_gguf.vocabulary import TokenList

_KINDS = {"gpt2": byte_level, "llama": sentencepiece}


@frozen
class TokenizerParts:
    """``tokenizer.json`` as bytes, the fields of ``tokenizer_config.json``, and the token list."""

    json: bytes
    config: Mapping[str, Any]
    tokens: TokenList


def read_tokenizer(metadata: Metadata) -> TokenizerParts:
    """Build the tokenizer from metadata; raises ``ModelError`` for a kind that cannot be rebuilt exactly."""
    model = metadata.text(f"{PREFIX}.model")
    if model not in _KINDS:
        metadata.fail(f"tokenizer model {model!r} is not supported (supported: {', '.join(_KINDS)})")
    kind = _KINDS[model]
    tokens = read_tokens(metadata, kind.DEFAULT_IDS)
    fields = kind.read_fields(metadata, tokens)
    adds_bos = metadata.flag(f"{PREFIX}.add_bos_token", default=fields.adds_bos) and "bos" in tokens.roles
    document = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": tokens.added_tokens(),
        "normalizer": fields.normalizer,
        "pre_tokenizer": fields.pre_tokenizer,
        "post_processor": _begin_with(tokens) if adds_bos else None,
        "decoder": fields.decoder,
        "model": fields.model,
    }
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    return TokenizerParts(text.encode(), _config(tokens, adds_bos=adds_bos), tokens)


def _config(tokens: TokenList, *, adds_bos: bool) -> dict[str, Any]:
    named = {f"{role}_token": tokens.text_of(role) for role in ("bos", "eos", "unk", "pad")}
    return {name: text for name, text in named.items() if text is not None} | {"add_bos_token": adds_bos}


def _begin_with(tokens: TokenList) -> dict[str, Any]:
    """A post-processor that puts the beginning-of-sequence token in front."""
    text, token_id = tokens.text_of("bos"), tokens.roles["bos"]

    def pieces(*sequences: tuple[str, int]) -> list[dict[str, Any]]:
        parts: list[dict[str, Any]] = []
        for name, type_id in sequences:
            parts += [{"SpecialToken": {"id": text, "type_id": type_id}}, {"Sequence": {"id": name, "type_id": type_id}}]
        return parts

    return {
        "type": "TemplateProcessing",
        "single": pieces(("A", 0)),
        "pair": pieces(("A", 0), ("B", 1)),
        "special_tokens": {text: {"id": text, "ids": [token_id], "tokens": [text]}},
    }
