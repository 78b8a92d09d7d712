"""The JSON objects of chat answers, whole and in chunks, as the OpenAI API defines them. Knows no transport."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, Any

from attrs import field, frozen

if TYPE_CHECKING:
    from lattice_core.types import FinishReason, Usage


def _new_id() -> str:
    return f"chatcmpl-{uuid.uuid4().hex}"


def _now() -> int:
    return int(time.time())


@frozen
class Answer:
    """One answer's identity, the same in all of its chunks. ``created`` is in seconds since 1970."""

    model: str
    id: str = field(factory=_new_id)
    created: int = field(factory=_now)

    def role_chunk(self) -> dict[str, Any]:
        """The first chunk."""
        return self._chunk([self._choice({"role": "assistant"})])

    def text_chunk(self, text: str) -> dict[str, Any]:
        """New text."""
        return self._chunk([self._choice({"content": text})])

    def finish_chunk(self, reason: FinishReason) -> dict[str, Any]:
        """The one chunk whose finish reason is not null."""
        return self._chunk([self._choice({}, reason.value)])

    def usage_chunk(self, usage: Usage) -> dict[str, Any]:
        """The chunk that a client gets which asked for usage; it has no choices, so that nobody counts it as text."""
        return self._chunk([]) | {"usage": usage_object(usage)}

    def completion(self, text: str, reason: FinishReason, usage: Usage) -> dict[str, Any]:
        """The whole answer of a request that is not streamed."""
        return {
            "id": self.id,
            "object": "chat.completion",
            "created": self.created,
            "model": self.model,
            "choices": [
                {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": reason.value},
            ],
            "usage": usage_object(usage),
        }

    def _chunk(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": "chat.completion.chunk",
            "created": self.created,
            "model": self.model,
            "choices": choices,
        }

    @staticmethod
    def _choice(delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
        return {"index": 0, "delta": delta, "finish_reason": reason}


def usage_object(usage: Usage) -> dict[str, int]:
    """Token counts."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.total_tokens,
    }
