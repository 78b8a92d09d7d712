"""Which token ids end a sequence, gathered from everywhere a checkpoint may say so. Knows no arrays."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from lattice_core.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lattice_core.protocols import Checkpoint


def eos_ids(checkpoint: Checkpoint, vocab_size: int) -> frozenset[int]:
    """The union of ``eos_token_id`` of config and generation config and of the tokenizer config's ``eos_token``.

    Raises ``ModelError`` for an id that is no token of the model.
    """
    found: set[int] = set()
    for where, mapping in (("config", checkpoint.config), ("generation_config", checkpoint.generation_config)):
        for token in _ids(where, mapping):
            if not 0 <= token < vocab_size:
                raise ModelError(f"{where}.eos_token_id {token} is outside the vocabulary of {vocab_size}")
            found.add(token)
    content = _content(checkpoint.tokenizer_config.get("eos_token"))
    if content is not None:
        found.update(token for token in _added(checkpoint.tokenizer_json, content) if 0 <= token < vocab_size)
    return frozenset(found)


def _ids(where: str, mapping: Mapping[str, Any]) -> list[int]:
    value = mapping.get("eos_token_id")
    values = [] if value is None else value if isinstance(value, list | tuple) else [value]
    for token in values:
        if isinstance(token, bool) or not isinstance(token, int):
            raise ModelError(f"{where}.eos_token_id is {value!r}: expected a token id or a list of them")
    return list(values)


def _content(token: Any) -> str | None:
    """The text of a special token, which stands there plain or as a mapping with its flags."""
    if isinstance(token, str):
        return token
    if hasattr(token, "get"):
        content = token.get("content")
        return content if isinstance(content, str) else None
    return None


def _added(tokenizer_json: bytes, content: str) -> Iterator[int]:
    try:
        added = json.loads(tokenizer_json).get("added_tokens") or []
    except (ValueError, AttributeError) as error:
        raise ModelError(f"the tokenizer JSON cannot be read: {error}") from error
    for entry in added:
        if entry.get("content") == content and isinstance(entry.get("id"), int):
            yield entry["id"]
