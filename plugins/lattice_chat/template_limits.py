"""What one rendering of a chat template may cost: seconds of its thread's CPU time, and characters.

A template comes with a checkpoint, so it is a stranger's program. These are the measures; ``template_sandbox`` puts them
where a template can spend. Knows nothing of messages or tokenizers.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any

from jinja2.sandbox import MAX_RANGE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

SECONDS = 2.0
"""CPU seconds of one rendering. An ordinary template takes some milliseconds."""
CHARACTERS = 8 * 1024 * 1024
"""Characters of the output and of any value on the way. A context of a million tokens is about half of it."""
WIDTH = 1000
"""Columns that a padding or an indent may ask for."""
BITS = 4096
"""Size of a whole number that a calculation may make."""

_PADDING = frozenset({"center", "ljust", "rjust", "zfill", "indent", "batch", "slice", "tojson", "round"})
_SUM_START = 2  # sum(value, attribute, start)
_LONG_WIDTH = re.compile(r"[0-9]{4,}|\*|\{[^{}]*\{")


class LimitError(Exception):
    """A template that costs more than it may; the message names the limit."""


class Clock:
    """The time of one rendering, in CPU seconds of the calling thread: a busy machine takes nothing away from it."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._end = time.thread_time() + seconds

    def tick(self) -> None:
        """Raise ``LimitError`` once the time is over."""
        if time.thread_time() > self._end:
            raise LimitError(f"it ran for more than {self._seconds:g} s")


class TimedIterable:
    """An iterable that asks the clock at each step. Has a length where the iterable has one."""

    def __init__(self, iterable: Iterable[Any], tick: Callable[[], None]) -> None:
        self._iterable = iterable
        self._tick = tick

    def __iter__(self) -> Iterator[Any]:
        for item in self._iterable:
            self._tick()
            yield item

    def __len__(self) -> int:
        return len(self._iterable)  # type: ignore[arg-type]  # a TypeError is the answer for an iterable without length


def weigh(value: Any) -> int:
    """How many characters ``value`` takes as text, about; lists and mappings count by their content.

    Raises ``LimitError`` above ``CHARACTERS``, also for a list that holds itself or doubles at each level.
    """
    total = 0
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            total += len(item)
        elif isinstance(item, dict):
            pending += [*item.keys(), *item.values()]
        elif isinstance(item, list | tuple | set | frozenset):
            pending += item
        total += 1
        if total > CHARACTERS:
            raise LimitError(f"a value grew beyond {CHARACTERS} characters")
    return total


def check_size(characters: int) -> None:
    """Raise ``LimitError`` for a text that would be longer than ``CHARACTERS``."""
    if characters > CHARACTERS:
        raise LimitError(f"a text of {characters} characters is longer than {CHARACTERS}")


def check_operator(operator: str, left: Any, right: Any) -> None:
    """Raise ``LimitError`` before ``left operator right`` makes something too large."""
    if operator == "%" and isinstance(left, str):
        check_format(left)
        weigh(right)
    elif operator == "+" and not isinstance(left, int | float):
        check_size(_length(left) + _length(right))
    elif operator == "*":
        if isinstance(left, int) and isinstance(right, int):
            _check_bits(left.bit_length() + right.bit_length())
        else:
            times = left if isinstance(left, int) else right
            check_size(max(_length(left), _length(right)) * (times if isinstance(times, int) else 1))
    elif operator == "**" and isinstance(left, int) and isinstance(right, int):
        _check_bits(left.bit_length() * abs(right))


def check_format(text: str) -> None:
    """Raise ``LimitError`` for a format with a field of 1,000 columns or more, or with a width from elsewhere."""
    if _LONG_WIDTH.search(text):
        raise LimitError(f"a format with a width above {WIDTH - 1} or a computed one is not allowed")


def check_call(name: str, operands: Sequence[Any], named: Mapping[str, Any]) -> None:
    """Raise ``LimitError`` before a filter or string method ``name`` makes something too large.

    ``operands[0]`` is the value that it works on.
    """
    weigh(operands)
    weigh(named)
    value, others = operands[0], (*operands[1:], *named.values())
    if name == "replace":
        texts = [item for item in others if isinstance(item, str)]
        if isinstance(value, str) and len(texts) > 1:
            check_size(len(value) + value.count(texts[0]) * len(texts[1]))
    elif name == "join":
        # One of the two is the separator: of the filter it comes second, of the method first.
        check_size(_length(value) * max((_length(item) for item in others), default=0))
    elif name in {"format", "format_map"}:
        check_format(str(value))
    elif name == "sum":
        if not isinstance(named.get("start", operands[2] if len(operands) > _SUM_START else 0), int | float):
            raise LimitError("sum is for numbers")
    elif name in _PADDING:
        width = max((_width(item) for item in others), default=0)
        if width > WIDTH:
            raise LimitError(f"{name} with a width of {width} is more than {WIDTH}")
        if name == "indent":
            check_size(str(value).count("\n") * max(width, 4))


def bounded_join(pieces: Iterable[str]) -> str:
    """The pieces as one text. Raises ``LimitError`` as soon as they are too many."""
    length = 0
    kept = []
    for piece in pieces:
        length += len(piece)
        check_size(length)
        kept.append(piece)
    return "".join(kept)


def _check_bits(bits: int) -> None:
    if bits > BITS:
        raise LimitError(f"a number of more than {BITS} bits")


def _length(value: Any) -> int:
    """Items of a container; an iterator may give as many as the sandbox's longest range."""
    if hasattr(value, "__len__"):
        return len(value)
    return MAX_RANGE if hasattr(value, "__next__") else 1


def _width(value: Any) -> int:
    if isinstance(value, int):
        return value
    return len(value) if isinstance(value, str) else 0
