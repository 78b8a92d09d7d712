"""Incremental detokenisation: the concatenated pieces equal the decoding of all tokens, and no piece holds half a character.

Two forms. For byte-level vocabularies (recognised by trying, not by the shape of the configuration) every token is bytes and an
incremental UTF-8 decoder does the rest. For every other decoder a short window of tokens is decoded again with each token.
"""

from __future__ import annotations

import codecs
import re
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lattice_core.tokenizer import Tokenizer

_BYTE_TOKEN = re.compile(r"<0x[0-9A-Fa-f]{2}>")
_REPLACEMENT = "\ufffd"
_PROBES = 512


class Detokenizer(Protocol):
    """Turns one row's tokens into text."""

    def push(self, tokens: Sequence[int]) -> str:
        """The text that these tokens complete; may be empty."""
        ...

    def finish(self) -> str:
        """What was held back; an incomplete character becomes U+FFFD as in the full decoding."""
        ...


class DetokenizerFactory:
    """Chooses the form for a tokenizer once, shares its table, and makes one detokenizer for each row."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        table = _byte_table(tokenizer)
        self._table = table if table is not None and _agrees(table, tokenizer) else None
        self._byte_tokens = (
            frozenset()
            if self._table is not None
            else frozenset(i for i in range(tokenizer.size) if _BYTE_TOKEN.fullmatch(tokenizer.token(i) or ""))
        )

    @property
    def byte_level(self) -> bool:
        """Whether the tokens of this vocabulary are plain bytes."""
        return self._table is not None

    def make(self) -> Detokenizer:
        """A detokenizer for one row."""
        if self._table is not None:
            return _ByteLevel(self._table)
        return _Windowed(self._tokenizer, self._byte_tokens)


class _ByteLevel:
    def __init__(self, table: Sequence[bytes]) -> None:
        self._table = table
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, tokens: Sequence[int]) -> str:
        size = len(self._table)
        return self._decoder.decode(b"".join(self._table[token] for token in tokens if token < size))

    def finish(self) -> str:
        return self._decoder.decode(b"", final=True)


class _Windowed:
    """Keeps the tokens since the last safe point: decoding them with and without the new ones differs by the new text."""

    def __init__(self, tokenizer: Tokenizer, byte_tokens: frozenset[int]) -> None:
        self._tokenizer = tokenizer
        self._byte_tokens = byte_tokens
        self._context: list[int] = []
        self._context_text = ""
        self._pending: list[int] = []

    def push(self, tokens: Sequence[int]) -> str:
        # The decoder leaves special tokens out, so they are no context either.
        self._pending += [token for token in tokens if token not in self._tokenizer.special_ids]
        if not self._pending:
            return ""
        # A run of byte-fallback tokens decodes as a whole: one bad byte in it changes all of it.
        if self._pending[-1] in self._byte_tokens:
            return ""
        text = self._tokenizer.decode(self._context + self._pending)
        if text.endswith(_REPLACEMENT):
            return ""
        return self._take(text)

    def finish(self) -> str:
        return self._take(self._tokenizer.decode(self._context + self._pending)) if self._pending else ""

    def _take(self, text: str) -> str:
        new = text[len(self._context_text) :]
        if new:
            self._context, self._pending = self._pending, []
            self._context_text = self._tokenizer.decode(self._context)
        return new


def _byte_table(tokenizer: Tokenizer) -> list[bytes] | None:
    """Bytes of every token under the byte-to-letter table of GPT-2; None when some token is spelt otherwise."""
    letters = _letters()
    added = {token["id"]: token for token in tokenizer.document.get("added_tokens") or ()}
    table: list[bytes] = []
    for token_id in range(max([tokenizer.size, *(number + 1 for number in added)])):
        if token_id in added:
            token = added[token_id]
            table.append(b"" if token.get("special") else token["content"].encode())
            continue
        try:
            table.append(bytes(letters[letter] for letter in tokenizer.token(token_id) or ""))
        except KeyError:
            return None
    return table


def _letters() -> dict[str, int]:
    """Printable Latin-1 bytes stand for themselves; the others follow from U+0100 on (GPT-2's published table)."""
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    table = {chr(byte): byte for byte in plain}
    for number, byte in enumerate(byte for byte in range(256) if byte not in plain):
        table[chr(256 + number)] = byte
    return table


def _agrees(table: Sequence[bytes], tokenizer: Tokenizer) -> bool:
    """Whether the table decodes as the tokenizer does: single tokens over the whole range, and runs of them."""
    stride = max(1, len(table) // _PROBES)
    sample = range(0, len(table), stride)
    singles = all(table[i].decode("utf-8", "replace") == tokenizer.decode([i]) for i in sample)
    runs = [[i, (i * 7 + 3) % len(table), (i * 13 + 5) % len(table)] for i in sample]
    return singles and all(b"".join(table[i] for i in run).decode("utf-8", "replace") == tokenizer.decode(run) for run in runs)
