"""The events of the JSON-lines protocol as bytes: one ``@@lattice {...}`` line each.

Text stands in them as raw UTF-8; only what JSON must escape is escaped.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lattice_core.types import Done

READY = b'@@lattice {"ev":"ready"}\n'


def token_event(text: str, token_ids: tuple[int, ...], echo: dict[str, Any]) -> bytes:
    """New text, with ``token_id`` of its one token or ``token_ids`` of several; ``echo`` holds the request's id."""
    ids: dict[str, Any] = {"token_id": token_ids[0]} if len(token_ids) == 1 else {"token_ids": list(token_ids)}
    return _line({"ev": "gen_token", "token": text, "done": False} | (ids if token_ids else {}) | echo)


def done_event(done: Done, echo: dict[str, Any]) -> bytes:
    """The last event of a request that ended by itself: times in milliseconds, speed in tokens per second."""
    timings, tokens = done.timings, done.usage.completion_tokens
    # The end-of-sequence token has a time too, but it is no token of the answer.
    first = (timings.first_token or 0.0) if tokens else 0.0
    return _line(
        {
            "ev": "gen_token",
            "token": "",
            "done": True,
            "tok_s": round(tokens_per_second(done), 1),
            "ttft_ms": round(first * 1000, 1),
            "prompt_tokens": done.usage.prompt_tokens,
            "gen_tokens": tokens,
            "total_ms": int(timings.total * 1000),
            "finish_reason": done.finish_reason.value,
        }
        | echo
    )


def error_event(message: str, echo: dict[str, Any], code: str | None = None) -> bytes:
    """A request that failed or was refused; ``code`` is the stable name of the error's kind."""
    named = {"code": code} if code else {}
    return _line({"ev": "error", "msg": message} | named | echo)


def tokens_per_second(done: Done) -> float:
    """Generated tokens per second of prefill and decode together; 0 without any token."""
    seconds = done.timings.total
    return done.usage.completion_tokens / seconds if seconds > 0 else 0.0


def _line(event: dict[str, Any]) -> bytes:
    text = json.dumps(event, ensure_ascii=False, separators=(",", ":"))
    # A lone surrogate has no UTF-8; written as \udXXX it is the JSON escape for itself.
    return f"@@lattice {text}\n".encode("utf-8", "backslashreplace")
