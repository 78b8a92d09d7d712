"""The token list of a GGUF file: texts, types and the ids with a role, checked.

Owns the keys ``tokenizer.ggml.*`` of ``docs/gguf.md`` (ggml project) that all tokenizer models share. Must not know how
text becomes tokens.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Any

from attrs import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lattice_gguf.metadata import Metadata

PREFIX = "tokenizer.ggml"
_ROLES = {"bos": "bos", "eos": "eos", "eot": "eot", "eom": "eom", "unk": "unknown", "pad": "padding"}
_ENDS = ("eos", "eot", "eom")


class TokenType(IntEnum):
    """Kinds of tokens, as numbered in the file."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@frozen
class TokenList:
    """Token texts and types by id. ``roles`` maps ``bos eos eot eom unk pad`` to ids, as far as the file names them."""

    texts: Sequence[str]
    types: Sequence[int]
    roles: Mapping[str, int]

    def text_of(self, role: str) -> str | None:
        """The text of the token with a role."""
        return self.texts[self.roles[role]] if role in self.roles else None

    @property
    def end_ids(self) -> list[int]:
        """All ids that end a sequence, the main one first."""
        return list(dict.fromkeys(self.roles[role] for role in _ENDS if role in self.roles))

    def added_tokens(self) -> list[dict[str, Any]]:
        """The field ``added_tokens`` of ``tokenizer.json``: tokens that are found in text before anything else.

        Control tokens are special, and so is every token with a role; user-defined ones are not.
        """
        with_role = frozenset(self.roles.values())
        special = (TokenType.CONTROL, TokenType.UNKNOWN)
        added = []
        for token_id, (text, kind) in enumerate(zip(self.texts, self.types, strict=True)):
            is_special = kind in special or token_id in with_role
            if is_special or kind == TokenType.USER_DEFINED:
                added.append(_added_token(token_id, text, special=is_special))
        return added


def read_tokens(metadata: Metadata, defaults: Mapping[str, int]) -> TokenList:
    """The token list; ``defaults`` are ids of roles for files that do not name them.

    Raises ``ModelError`` for an empty list, a token that stands twice, or a role's id outside the list.
    """
    texts = [text or f"[EMPTY_{token_id}]" for token_id, text in enumerate(metadata.strings(f"{PREFIX}.tokens"))]
    if not texts:
        metadata.fail(f"metadata key '{PREFIX}.tokens' is empty")
    if len(set(texts)) != len(texts):
        seen: set[str] = set()
        double = next(text for text in texts if text in seen or seen.add(text))  # type: ignore[func-returns-value] # add() gives None
        metadata.fail(f"token {double!r} stands twice in the vocabulary")
    key = f"{PREFIX}.token_type"
    types = metadata.numbers(key, len(texts), "tokens") if key in metadata else [int(TokenType.NORMAL)] * len(texts)
    roles: dict[str, int] = {}
    for role, name in _ROLES.items():
        key = f"{PREFIX}.{name}_token_id"
        token_id = metadata.integer(key, default=defaults.get(role))
        if token_id is None:
            continue
        if token_id >= len(texts):
            metadata.fail(f"metadata key {key!r} is {token_id}, the vocabulary has {len(texts)} tokens")
        roles[role] = token_id
    return TokenList(texts, types, roles)


def _added_token(token_id: int, text: str, *, special: bool) -> dict[str, Any]:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": special}
    return {"id": token_id, "content": text, **flags}
