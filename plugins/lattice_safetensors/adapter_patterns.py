"""PEFT's patterns: keys of ``rank_pattern`` and ``alpha_pattern`` that stand for modules by regular expressions.

Owns the matching rule: a key matches a path when it matches all of it or all that follows one of its dots (PEFT,
``peft.utils.other.get_pattern_key``). The expressions come from a file that nobody vouches for, and a backtracking matcher
can be made to run for ever without letting other threads in; so they are matched in time proportional to the lengths of both
(Thompson, 1968). What that cannot do (groups that look around or refer back) no path of a module needs. Knows no adapter.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TypeAlias

    # An instruction: the test of one character, or a kind and where to go on.
    _Step: TypeAlias = "tuple[str, Callable[[str], object] | None, tuple[int, ...]]"
    _Emit: TypeAlias = "Callable[[list[_Step]], None]"

_MAX_LENGTH = 1024
_MAX_STEPS = 4096
_MAX_DEPTH = 16
_MAX_KEYS = 65_536
_MAX_ALL_STEPS = 1 << 18
# In steps of expressions times characters of paths: about a minute.
_MAX_WORK = 1 << 29
_COUNT = re.compile(r"\{(\d{1,4})?(,)?(\d{1,4})?\}")
_PLAIN = re.compile(r"[A-Za-z0-9_.\-]+")
_CLASS = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)
# Python reserves these inside a class for operations on sets.
_RESERVED = ("[", "--", "&&", "||", "~~")
_CHARACTER, _SPLIT, _BEGIN, _END, _DONE = "character", "split", "begin", "end", "done"


_Value = TypeVar("_Value")


class PatternSyntaxError(ValueError):
    """An expression that is none, or that asks for more than this matcher does."""


class PatternTable(Generic[_Value]):
    """Keys with a value each: the first key that matches a path, in the order of ``values``, gives its value.

    Raises ``PatternSyntaxError`` naming the key, and where all keys together need too much memory. ``work`` bounds the time of
    all searches together, in steps times characters.
    """

    def __init__(self, values: Mapping[str, _Value], *, work: int = _MAX_WORK) -> None:
        if len(values) > _MAX_KEYS:
            raise PatternSyntaxError(f"it has {len(values)} keys; at most {_MAX_KEYS} are possible")
        self._work = work
        self._entries: list[tuple[ModulePattern, _Value]] = []
        steps = 0
        for key, value in values.items():
            try:
                pattern = ModulePattern(key)
            except PatternSyntaxError as error:
                raise PatternSyntaxError(f"the key {key[:120]!r} is no pattern that can be matched: {error}") from error
            steps += pattern.steps
            if steps > _MAX_ALL_STEPS:
                raise PatternSyntaxError(
                    f"its expressions need more than {_MAX_ALL_STEPS} steps together; name modules in full"
                )
            self._entries.append((pattern, value))

    def find(self, path: str) -> _Value | None:
        """The value for ``path``; None where no key matches. Raises ``PatternSyntaxError`` once the work is used up."""
        for pattern, value in self._entries:
            self._work -= pattern.steps * (len(path) + 1) or 1
            if self._work < 0:
                raise PatternSyntaxError("its expressions take too long for this many modules; name modules in full")
            if pattern.matches(path):
                return value
        return None


class ModulePattern:
    """One key. Raises ``PatternSyntaxError`` with the cause."""

    def __init__(self, key: str) -> None:
        if len(key) > _MAX_LENGTH:
            raise PatternSyntaxError(f"it has {len(key)} characters, at most {_MAX_LENGTH} are possible")
        self._plain = key if _PLAIN.fullmatch(key) else None
        self._steps: list[_Step] = []
        if self._plain is None:
            _Parser(key).whole()(self._steps)
            self._steps.append((_DONE, None, ()))

    @property
    def steps(self) -> int:
        """The size of its program; 0 for a key that needs none. A path takes at most this times its length."""
        return len(self._steps)

    def matches(self, path: str) -> bool:
        """Whether ``path``, or all of it after one of its dots, matches."""
        if self._plain is not None:
            return _ends_with(path, self._plain)
        return self._run(path)

    def _run(self, path: str) -> bool:
        states: set[int] = set()
        for position in range(len(path) + 1):
            starts = position == 0 or path[position - 1] == "."
            states = self._closed(states | {0} if starts else states, position, len(path))
            if position == len(path):
                break
            character = path[position]
            reached: set[int] = set()
            for index in states:
                kind, test, after = self._steps[index]
                if kind == _CHARACTER and test is not None and test(character):
                    reached.update(after)
            states = reached
        return any(self._steps[index][0] == _DONE for index in states)

    def _closed(self, states: set[int], position: int, length: int) -> set[int]:
        """All states that are reached without a character."""
        reached: set[int] = set()
        waiting = list(states)
        while waiting:
            index = waiting.pop()
            if index in reached:
                continue
            reached.add(index)
            kind, _, after = self._steps[index]
            if kind == _SPLIT or (kind == _BEGIN and position == 0) or (kind == _END and position == length):
                waiting.extend(after)
        return reached


def _ends_with(path: str, key: str) -> bool:
    """The same for a key of letters, digits and dots, where a dot stands for any character."""
    start = len(path) - len(key)
    if start < 0 or (start and path[start - 1] != "."):
        return False
    tail = path[start:]
    return tail == key or all(wanted in (found, ".") for wanted, found in zip(key, tail, strict=True))


class _Parser:
    """Recursive descent over Python's notation. Each rule answers with what appends its instructions to a program."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0

    def whole(self) -> _Emit:
        emit = self._choice()
        if self._at < len(self._text):
            raise PatternSyntaxError(f"its {self._next()!r} at {self._at} closes nothing")
        return emit

    def _next(self) -> str:
        return self._text[self._at : self._at + 1]

    def _choice(self) -> _Emit:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise PatternSyntaxError(f"its groups are nested more than {_MAX_DEPTH} deep")
        choices = [self._sequence()]
        while self._next() == "|":
            self._at += 1
            choices.append(self._sequence())
        self._depth -= 1
        return choices[0] if len(choices) == 1 else _either(choices)

    def _sequence(self) -> _Emit:
        parts: list[_Emit] = []
        while self._next() not in ("", "|", ")"):
            parts.append(self._repeated(self._atom()))
        return _all(parts)

    def _atom(self) -> _Emit:
        character = self._next()
        if character == "(":
            return self._group()
        if character in "*+?{":
            raise PatternSyntaxError(f"its {character!r} at {self._at} repeats nothing")
        if character in "^$":
            self._at += 1
            return _single(_BEGIN if character == "^" else _END, None)
        return self._character()

    def _group(self) -> _Emit:
        self._at += 1
        if self._text.startswith("?:", self._at):
            self._at += 2
        elif self._next() == "?":
            raise PatternSyntaxError("only the groups (...) and (?:...) are possible")
        emit = self._choice()
        if self._next() != ")":
            raise PatternSyntaxError("a group is not closed")
        self._at += 1
        return emit

    def _character(self) -> _Emit:
        """One character's test; ``re`` reads it, which is safe for what can neither repeat nor branch."""
        start = self._at
        if self._next() == "[":
            found = _CLASS.match(self._text, start)
            if found is None:
                raise PatternSyntaxError("a class is not closed")
            if any(reserved in found[0][1:] for reserved in _RESERVED):
                raise PatternSyntaxError(f"the class {found[0]} is not possible")
            self._at = found.end()
        elif self._next() == "\\":
            escaped = self._text[start + 1 : start + 2]
            if not escaped or (escaped.isalnum() and escaped not in "dDwWsS"):
                raise PatternSyntaxError(f"the escape \\{escaped} is not possible")
            self._at += 2
        else:
            self._at += 1
        try:
            return _single(_CHARACTER, re.compile(self._text[start : self._at]).fullmatch)
        except re.error as error:
            raise PatternSyntaxError(f"{self._text[start : self._at]} is no class: {error}") from error

    def _repeated(self, emit: _Emit) -> _Emit:
        character = self._next()
        if character not in ("*", "+", "?", "{"):
            return emit
        bounds = {"*": (0, None), "+": (1, None), "?": (0, 1)}
        if character in bounds:
            least, most = bounds[character]
            self._at += 1
        else:
            least, most = self._count()
        if self._next() == "?":
            self._at += 1  # a lazy repeat finds the same ends
        if self._next() in ("*", "+", "?", "{") and self._next():
            raise PatternSyntaxError(f"its {self._next()!r} at {self._at} repeats a repeat")
        return _times(emit, least, most)

    def _count(self) -> tuple[int, int | None]:
        found = _COUNT.match(self._text, self._at)
        if found is None or (found[1] is None and found[3] is None):
            raise PatternSyntaxError(f"its '{{' at {self._at} begins no count such as {{1,2}}")
        self._at = found.end()
        least = int(found[1] or 0)
        most = int(found[3]) if found[3] is not None else None if found[2] else least
        if most is not None and most < least:
            raise PatternSyntaxError(f"its count {found[0]} ends before it begins")
        return least, most


def _append(program: list[_Step], step: _Step) -> None:
    if len(program) >= _MAX_STEPS:
        raise PatternSyntaxError(f"it needs more than {_MAX_STEPS} steps; count less")
    program.append(step)


def _single(kind: str, test: Callable[[str], object] | None) -> _Emit:
    return lambda program: _append(program, (kind, test, (len(program) + 1,)))


def _all(parts: list[_Emit]) -> _Emit:
    def emit(program: list[_Step]) -> None:
        for part in parts:
            part(program)

    return emit


def _either(choices: list[_Emit]) -> _Emit:
    def emit(program: list[_Step]) -> None:
        fork = len(program)
        _append(program, (_SPLIT, None, ()))
        begins, ends = [], []
        for choice in choices:
            begins.append(len(program))
            choice(program)
            ends.append(len(program))
            _append(program, (_SPLIT, None, ()))
        program[fork] = (_SPLIT, None, tuple(begins))
        for end in ends:
            program[end] = (_SPLIT, None, (len(program),))

    return emit


def _times(part: _Emit, least: int, most: int | None) -> _Emit:
    def emit(program: list[_Step]) -> None:
        for _ in range(least):
            before = len(program)
            part(program)
            if len(program) == before:
                raise PatternSyntaxError("it repeats an empty group")
        forks: list[int] = []
        for _ in range(1 if most is None else most - least):
            forks.append(len(program))
            _append(program, (_SPLIT, None, ()))
            part(program)
        if most is None:
            _append(program, (_SPLIT, None, (forks[0],)))
        for fork in forks:
            program[fork] = (_SPLIT, None, (fork + 1, len(program)))

    return emit
