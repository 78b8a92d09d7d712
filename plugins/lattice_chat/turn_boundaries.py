"""Where messages end inside a rendered prompt, found in its ids.

Only the renderer writes control tokens, so the token that opens a turn cannot come from a message's text, and the place
where a turn opens is the place where the message before it ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lattice_core.protocols import Vocabulary

TURN_OPENERS = ("<|im_start|>", "<|start_header_id|>", "<start_of_turn>")
"""Tokens that open a turn: ChatML, Llama 3, Gemma."""


def turn_opener(template: str, vocabulary: Vocabulary) -> int | None:
    """The id of the token that opens a turn in ``template``, or None where it uses none of the known ones."""
    for token in TURN_OPENERS:
        if token in template:
            found = vocabulary.token_id(token)
            if found is not None:
                return found
    return None


def boundaries(ids: Sequence[int], opener: int | None) -> tuple[int, ...]:
    """Offsets into ``ids`` where a message ends, ascending; empty where the format has no opening token."""
    if opener is None:
        return ()
    return tuple(offset for offset, token in enumerate(ids) if token == opener and offset > 0)
