"""Owns the bare ChatML that the harness renders chats with, so that it needs no plugin. Knows no model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lattice_core.types import Prompt

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lattice_core.protocols import Vocabulary
    from lattice_core.types import Message


class BareChatML:
    """Turns ``<|im_start|>ROLE`` newline ``CONTENT<|im_end|>`` newline, then the opening of the assistant's turn."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary

    def render(self, messages: Sequence[Message], options: Mapping[str, Any]) -> Prompt:  # noqa: ARG002 - bare ChatML has no options
        """The prompt up to where the assistant speaks; a boundary stands after each message."""
        ids: tuple[int, ...] = ()
        boundaries = []
        for message in messages:
            content = self._vocabulary.escape(message.content)
            ids += self._vocabulary.encode_escaped(f"<|im_start|>{message.role}\n{content}<|im_end|>\n")
            boundaries.append(len(ids))
        ids += self._vocabulary.encode_escaped("<|im_start|>assistant\n")
        return Prompt(ids, tuple(boundaries))

    @property
    def stop_ids(self) -> frozenset[int]:
        """The end of a turn."""
        end = self._vocabulary.token_id("<|im_end|>")
        return frozenset() if end is None else frozenset({end})
