"""Owns the language of directives that a prompt drives the scripted model with. Knows nothing of models, states or arrays.

A directive stands in double square brackets anywhere in the prompt:

``[[say:TEXT]]``          the reply is TEXT (which holds no ``]]``)
``[[repeat:N]]``          the reply is N times ``x``
``[[echo]]``              the reply is the whole prompt, control tokens written out
``[[fail-prefill]]``      the forward that completes the prompt raises
``[[fail:K]]``            the forward that would make reply token K (from 0) raises
``[[delay:MS]]``          every decode forward of the row takes that many milliseconds longer
``[[prefill-delay:MS]]``  every prefill forward of the row does
``[[hang]]``              the forward that completes the prompt blocks until it is released

Several replies are joined in their order; of every other kind the last one counts. In a chat only the last user turn is
read, so that a conversation's history does not speak again. Anything that is no directive is ordinary text.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from attrs import frozen

from lattice_conformance.scripted_tokenizer import IM_END_ID, IM_START_ID, text_of

if TYPE_CHECKING:
    from collections.abc import Sequence

DEFAULT_REPLY = "Hello from the scripted backend."

_DIRECTIVE = re.compile(
    r"\[\[(?:say:(?P<say>.*?)|(?P<kind>repeat|fail|delay|prefill-delay):(?P<number>\d{1,9})|(?P<word>echo|fail-prefill|hang))\]\]",
    re.DOTALL,
)


@frozen
class Script:
    """What one prompt asks of the scripted model. ``reply`` holds one token id per byte; delays are in seconds."""

    reply: bytes
    fail_at: int | None = None
    decode_delay: float = 0.0
    prefill_delay: float = 0.0
    hang: bool = False

    def token(self, index: int) -> int:
        """Reply token ``index`` (from 0): a byte of the reply, and ``<|im_end|>`` for ever after its end."""
        return self.reply[index] if index < len(self.reply) else IM_END_ID


def read_script(prompt: Sequence[int], limit: int) -> Script:
    """The script of a prompt's token ids, a pure function of them; the reply is cut at ``limit`` tokens."""
    replies: list[bytes] = []
    numbers: dict[str, int] = {}
    words: set[str] = set()
    for match in _DIRECTIVE.finditer(text_of(_last_user_turn(prompt))):
        if (said := match["say"]) is not None:
            replies.append(said.encode()[:limit])
        elif (kind := match["kind"]) == "repeat":
            replies.append(b"x" * min(int(match["number"]), limit))
        elif kind is not None:
            numbers[kind] = int(match["number"])
        elif match["word"] == "echo":
            replies.append(text_of(prompt).encode()[:limit])
        else:
            words.add(match["word"])
    return Script(
        reply=b"".join(replies)[:limit] if replies else DEFAULT_REPLY.encode()[:limit],
        fail_at=0 if "fail-prefill" in words else numbers.get("fail"),
        decode_delay=numbers.get("delay", 0) / 1000,
        prefill_delay=numbers.get("prefill-delay", 0) / 1000,
        hang="hang" in words,
    )


def _last_user_turn(prompt: Sequence[int]) -> Sequence[int]:
    """The ids after the last turn opening of the role ``user``; the whole prompt where no turn is opened."""
    opening = (IM_START_ID, *b"user")
    for start in range(len(prompt) - len(opening), -1, -1):
        if prompt[start] == IM_START_ID and tuple(prompt[start : start + len(opening)]) == opening:
            return prompt[start + len(opening) :]
    return prompt
