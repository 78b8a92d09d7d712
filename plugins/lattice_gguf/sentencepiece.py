"""SentencePiece BPE with scores and byte fallback (``tokenizer.ggml.model`` is ``llama``), as merges with ranks.

SentencePiece joins the neighbours whose joined piece has the best score. A ranked merge for every way to cut a piece in
two, ordered by the score of the piece, does the same; pieces that can be cut in several ways have the longer left part
first, as in the tokenizers that are published for these models. Text gets a space in front where the file says so, at its
begin and after every control token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lattice_gguf.tokenizer_fields import TokenizerFields, bpe
from lattice_gguf.vocabulary import PREFIX, TokenType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lattice_gguf.metadata import Metadata
    from lattice_gguf.vocabulary import TokenList

DEFAULT_IDS: Mapping[str, int] = {"unk": 0, "bos": 1, "eos": 2}
_SPACE = "\u2581"
# The cuts of a piece grow with its length squared; real pieces have 16 to 64 characters.
_MAX_PIECE = 512


def read_fields(metadata: Metadata, tokens: TokenList) -> TokenizerFields:
    """The fields for this file; raises ``ModelError`` when pieces for single bytes are missing."""
    vocabulary = {text: token_id for token_id, text in enumerate(tokens.texts)}
    for byte in range(256):
        if f"<0x{byte:02X}>" not in vocabulary:
            metadata.fail(f"the vocabulary has no piece '<0x{byte:02X}>'; SentencePiece without byte fallback is not supported")
    if metadata.flag(f"{PREFIX}.remove_extra_whitespaces", default=False):
        metadata.fail("SentencePiece that removes extra white space is not supported")
    prefix_space = metadata.flag(f"{PREFIX}.add_space_prefix", default=True)
    return TokenizerFields(
        model=bpe(vocabulary, _merges(metadata, tokens), whole_words=False, byte_fallback=True),
        decoder=_decoder(prefix_space=prefix_space),
        normalizer=_normalizer(prefix_space=prefix_space),
        pre_tokenizer=None,
        adds_bos=True,
    )


def _merges(metadata: Metadata, tokens: TokenList) -> list[list[str]]:
    scores = metadata.numbers(f"{PREFIX}.scores", len(tokens.texts), "tokens")
    # Control, byte and unused pieces never arise from text.
    joinable = (TokenType.NORMAL, TokenType.USER_DEFINED)
    ids = {text: token_id for token_id, text in enumerate(tokens.texts) if tokens.types[token_id] in joinable}
    ranked = []
    for piece, token_id in ids.items():
        if len(piece) > _MAX_PIECE:
            metadata.fail(f"token {token_id} has {len(piece)} characters, more than {_MAX_PIECE}")
        for cut in range(1, len(piece)):
            left, right = piece[:cut], piece[cut:]
            if left in ids and right in ids:
                ranked.append((-scores[token_id], token_id, -cut, left, right))
    ranked.sort()
    return [[left, right] for *_, left, right in ranked]


def _normalizer(*, prefix_space: bool) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"type": "Prepend", "prepend": _SPACE}] if prefix_space else []
    steps.append({"type": "Replace", "pattern": {"String": " "}, "content": _SPACE})
    return {"type": "Sequence", "normalizers": steps}


def _decoder(*, prefix_space: bool) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [
        {"type": "Replace", "pattern": {"String": _SPACE}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    if prefix_space:
        steps.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    return {"type": "Sequence", "decoders": steps}
