"""The conversation so far, in whole turns: what the user said and what the assistant answered. Knows no engine."""

from __future__ import annotations

from attrs import define, field, frozen

from lattice_core.types import Message


@frozen
class Turn:
    """One exchange."""

    user: str
    assistant: str


@define
class Conversation:
    """``system`` may be empty; ``turns`` are oldest first."""

    system: str
    turns: list[Turn] = field(factory=list)

    def messages(self, text: str, without: int = 0) -> tuple[Message, ...]:
        """The messages of a request in which the user says ``text``, the oldest ``without`` turns left out."""
        found = [Message("system", self.system)] if self.system else []
        for turn in self.turns[without:]:
            found += [Message("user", turn.user), Message("assistant", turn.assistant)]
        return (*found, Message("user", text))

    def add(self, text: str, answer: str, without: int = 0) -> None:
        """Keep a new turn, its answer trimmed, and forget the oldest ``without`` ones."""
        del self.turns[:without]
        self.turns.append(Turn(text, answer.strip()))
