r"""Bare ChatML: every message between its marks and nothing else.

For each message ``<|im_start|>role\ncontent<|im_end|>\n``, then ``<|im_start|>assistant\n``: no default system prompt, no
trimming, no tools. Where the vocabulary lacks the two marks they are plain text, which a base model still continues.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lattice_chat.message_text import as_answer, as_text
from lattice_chat.turn_boundaries import boundaries
from lattice_core.errors import UnsupportedFeatureError
from lattice_core.types import Prompt

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lattice_core.descriptors import Settings
    from lattice_core.protocols import Vocabulary
    from lattice_core.types import Message

START, END = "<|im_start|>", "<|im_end|>"


class ChatML:
    """Implements ``protocols.ChatFormat``."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._start = vocabulary.token_id(START)
        end = vocabulary.token_id(END)
        self._stop_ids = frozenset() if end is None else frozenset({end})

    @property
    def stop_ids(self) -> frozenset[int]:
        """The id of ``<|im_end|>``; empty where the vocabulary lacks it."""
        return self._stop_ids

    def render(self, messages: Sequence[Message], options: Mapping[str, Any]) -> Prompt:
        """The prompt up to where the assistant speaks.

        Raises ``UnsupportedFeatureError`` for template options that ask for something: bare ChatML has no variables.
        """
        for name, value in options.items():
            if value is not None and value is not False:
                raise UnsupportedFeatureError(
                    f"chat format chatml has no variables, so {name}={value!r} cannot be honoured: leave it out, or use "
                    "a model with a chat template",
                    param=name,
                )
        ids = self._vocabulary.encode_escaped(self.text(messages))
        return Prompt(ids=ids, boundaries=boundaries(ids, self._start))

    def text(self, messages: Sequence[Message]) -> str:
        """The rendered text, with what could act as control in it hidden by ``Vocabulary.escape``."""
        return "".join([*map(self._turn, messages), f"{START}assistant\n"])

    def _turn(self, message: Message) -> str:
        role = "system" if message.role == "developer" else message.role
        hide = as_answer if role == "assistant" else as_text
        return f"{START}{as_text(role, self._vocabulary)}\n{hide(message.content, self._vocabulary)}{END}\n"


def create(_template: str | None, vocabulary: Vocabulary, _settings: Settings) -> ChatML:
    """The factory of the chat format ``chatml``."""
    return ChatML(vocabulary)
