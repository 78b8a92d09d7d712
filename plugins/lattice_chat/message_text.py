"""How the text of messages enters a rendered prompt: as text, never as control.

Knows which control tokens a model writes itself in its answers. Knows nothing of templates.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lattice_core.protocols import Vocabulary

REASONING_MARKS = ("<think>", "</think>")
"""Added tokens that a model writes in its own answers. Templates look for them in the history to leave old reasoning out."""

_MARK = re.compile("|".join(re.escape(mark) for mark in REASONING_MARKS))


def as_text(text: str, vocabulary: Vocabulary) -> str:
    """``text`` hidden, so that no literal of a control token in it can act as one."""
    return vocabulary.escape(text)


def as_answer(text: str, vocabulary: Vocabulary) -> str:
    """An assistant's earlier answer: as text, but for the reasoning marks, which stay the tokens that they were.

    Without them a template could not find the reasoning that it drops, and a repeated conversation would not begin with
    the tokens that the model has seen.
    """
    pieces = []
    position = 0
    for match in _MARK.finditer(text):
        pieces += [vocabulary.escape(text[position : match.start()]), match.group()]
        position = match.end()
    return "".join([*pieces, vocabulary.escape(text[position:])])


def values_as_text(value: Any, vocabulary: Vocabulary) -> Any:
    """A JSON-like value with every string in it hidden, keys included."""
    if isinstance(value, str):
        return vocabulary.escape(value)
    if isinstance(value, dict):
        return {values_as_text(key, vocabulary): values_as_text(item, vocabulary) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [values_as_text(item, vocabulary) for item in value]
    return value
