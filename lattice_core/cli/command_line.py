"""Splits a command line into early flags, the command, and the options by their table.

Two passes: ``scan_early`` needs no plugin and says which plugins may load; ``split_command`` and ``parse_flags`` need the
table of all options, because only that says which flags take a value. A flag is never taken as another flag's value.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from attrs import field, frozen

from lattice_core.errors import UsageError
from lattice_core.nearest import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lattice_core.options import OptionTable

_FLAG = re.compile(r"--?[A-Za-z][\w.-]*(=.*)?", re.DOTALL)
_DISABLE = "no:"
_NO_VALUE = ("-h", "--help")


@frozen
class Early:
    """What must be known before plugins load. ``rest`` is the command line without what was taken from it."""

    disabled: tuple[str, ...] = ()
    third_party: bool = True
    debug: bool = False
    rest: tuple[str, ...] = ()


def looks_like_flag(argument: str) -> bool:
    """Whether a argument is a flag rather than a value: ``-1`` and ``- a`` are values, ``-x`` and ``--x=1`` are flags."""
    if _FLAG.fullmatch(argument) is None:
        return False
    try:
        float(argument)
    except ValueError:
        return True
    return False


def scan_early(argv: Sequence[str]) -> Early:
    """Take ``-p no:NAME`` and ``--no-plugins`` out of the command line, and see whether ``--debug`` is in it.

    They count wherever they stand before ``--``. Raises ``UsageError`` for ``-p`` with anything else than ``no:NAME``.
    """
    disabled: list[str] = []
    rest: list[str] = []
    third_party = True
    debug = False
    arguments = list(argv)
    while arguments:
        argument = arguments.pop(0)
        if argument == "--":
            rest += [argument, *arguments]
            break
        if argument == "--no-plugins":
            third_party = False
        elif argument == "-p" or argument.startswith(f"-p{_DISABLE}"):
            disabled.append(_disabled_name(argument[2:] or (arguments.pop(0) if arguments else "")))
        else:
            debug = debug or argument == "--debug"
            rest.append(argument)
    return Early(tuple(disabled), third_party, debug, tuple(rest))


def _disabled_name(text: str) -> str:
    if not text.startswith(_DISABLE) or not text.removeprefix(_DISABLE).strip():
        msg = f"-p: {text!r} is not no:NAME, where NAME is a plugin or a distribution (see `lattice plugins`)"
        raise UsageError(msg)
    return text.removeprefix(_DISABLE).strip()


def split_command(arguments: Sequence[str], table: OptionTable) -> tuple[str | None, list[str]]:
    """The first argument that is neither a flag nor the value of one, and the others. None where there is no such argument."""
    position = 0
    while position < len(arguments):
        argument = arguments[position]
        if argument == "--":
            break
        if not looks_like_flag(argument):
            return argument, [*arguments[:position], *arguments[position + 1 :]]
        bound = table.find_flag(argument.partition("=")[0])
        if bound is None and argument not in _NO_VALUE:
            break  # Whether a value follows an unknown flag cannot be known; it will be refused by its name.
        takes_value = bound is not None and bound.option.type != "bool" and "=" not in argument
        position += 2 if takes_value else 1
    return None, list(arguments)


@frozen
class Flags:
    """What the command line says: for each option (by ``dest``) the flags as written and their texts, in order."""

    given: Mapping[str, Sequence[tuple[str, str]]] = field(factory=dict)
    help: bool = False

    def text(self, dest: str) -> str | None:
        """The last text given for an option."""
        pairs = self.given.get(dest)
        return pairs[-1][1] if pairs else None


def parse_flags(arguments: Sequence[str], table: OptionTable, *, note: str = "") -> Flags:
    """All options of the command line. Raises ``UsageError`` for what is no option or lacks its value.

    ``note`` ends the message about an unknown flag; it says which plugins failed.
    """
    given: dict[str, list[tuple[str, str]]] = {}
    wants_help = False
    remaining = list(arguments)
    while remaining:
        argument = remaining.pop(0)
        if argument in _NO_VALUE:
            wants_help = True
            continue
        if not looks_like_flag(argument):
            msg = f"unexpected argument {argument!r}; a value belongs to the flag before it, and there is none that takes it"
            raise UsageError(msg)
        flag, equals, text = argument.partition("=")
        bound = table.find_flag(flag)
        if bound is None:
            msg = f"unknown option {flag}{did_you_mean(flag, table.flags())}; see `lattice --help`{note}"
            raise UsageError(msg)
        if bound.option.type == "bool":
            if flag in bound.negations:
                if equals:
                    msg = f"{flag} takes no value"
                    raise UsageError(msg)
                text = "false"
            elif not equals:
                text = "true"
        elif not equals:
            text = _value_after(flag, remaining)
        given.setdefault(bound.dest, []).append((flag, text))
    return Flags(given, wants_help)


def _value_after(flag: str, remaining: list[str]) -> str:
    if not remaining:
        msg = f"{flag} needs a value"
        raise UsageError(msg)
    if looks_like_flag(remaining[0]):
        msg = f"{flag} needs a value, but {remaining[0]} follows; write {flag}={remaining[0]} if that is the value"
        raise UsageError(msg)
    return remaining.pop(0)
