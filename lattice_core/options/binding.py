"""Gives an option its flag, its variable and its configuration key, and refuses two options that would share one.

Knows nothing of values. An owner is the public name of a part (``mlx``, or ``DISTRIBUTION/NAME`` where the name alone is
ambiguous); the core's own options have the owner ``""``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from attrs import frozen

from lattice_core.errors import PluginError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lattice_core.descriptors import Option

CORE = ""
_ALIAS = re.compile(r"(--?)?[A-Za-z][\w-]*")
RESERVED_FLAGS = ("-h", "--help", "--version", "-p", "--no-plugins")
"""Flags of the command line that are no options."""


@frozen
class BoundOption:
    """An option with all its names. ``label`` names the owner in messages; ``reserved`` ones win against strangers'."""

    owner: str
    label: str
    option: Option
    flags: tuple[str, ...]
    variables: tuple[str, ...]
    reserved: bool = False

    @property
    def key(self) -> str:
        """The configuration key, in kebab case."""
        return _kebab(self.option.name)

    @property
    def dest(self) -> str:
        """A name for the parsed value that no other option has."""
        return f"{self.owner}:{self.option.name}"

    @property
    def negations(self) -> tuple[str, ...]:
        """For a switch: the flags that turn it off."""
        if self.option.type != "bool":
            return ()
        return tuple(f"--no-{flag[2:]}" for flag in self.flags if flag.startswith("--"))


class CollisionError(PluginError):
    """Two options claim the same flag or variable. ``reserved``: the first one is the core's or the first party's."""

    def __init__(self, name: str, first: BoundOption | None, second: BoundOption) -> None:
        super().__init__(
            f"{name} is claimed both by {_owner(first)} and by {_owner(second)};"
            " leave one plugin out with -p no:NAME (see `lattice plugins`)"
        )
        self.reserved = first is None or first.reserved


def bind(option: Option, owner: str = CORE, label: str = "lattice itself", *, reserved: bool = False) -> BoundOption:
    """The option's names. ``--OWNER-NAME`` and ``LATTICE_OWNER_NAME``; without an owner ``--NAME`` and ``LATTICE_NAME``.

    Raises ``PluginError`` for an alias that cannot be a flag.
    """
    stem = _kebab(f"{owner}-{option.name}" if owner else option.name)
    for alias in option.aliases:
        if _ALIAS.fullmatch(alias) is None:
            msg = f"{label}: option {option.name}: the alias {alias!r} cannot be a flag"
            raise PluginError(msg)
    variable = f"LATTICE_{stem.replace('-', '_').upper()}"
    return BoundOption(
        owner=owner,
        label=label,
        option=option,
        flags=(f"--{stem}", *(_flag(alias) for alias in option.aliases)),
        variables=(variable, *option.env_aliases),
        reserved=reserved or owner == CORE,
    )


def _kebab(name: str) -> str:
    return re.sub(r"[-_./]+", "-", name).lower()


def _flag(alias: str) -> str:
    bare = alias.lstrip("-")
    return f"-{bare}" if alias.startswith("-") and len(bare) == 1 else f"--{bare}"


class OptionTable:
    """All options of one run, by flag. Adding one whose flag or variable is taken raises ``CollisionError``."""

    def __init__(self) -> None:
        self._options: list[BoundOption] = []
        self._flags: dict[str, BoundOption | None] = dict.fromkeys(RESERVED_FLAGS)
        self._variables: dict[str, BoundOption] = {}

    def add(self, options: Iterable[BoundOption]) -> None:
        """Add all of ``options``, or none of them where one collides."""
        added = list(options)
        flags = dict(self._flags)
        variables = dict(self._variables)
        for bound in added:
            for flag in (*bound.flags, *bound.negations):
                if flag in flags:
                    raise CollisionError(flag, flags[flag], bound)
                flags[flag] = bound
            for variable in bound.variables:
                if variable in variables:
                    raise CollisionError(variable, variables[variable], bound)
                variables[variable] = bound
        self._flags, self._variables = flags, variables
        self._options.extend(added)

    def __iter__(self) -> Iterator[BoundOption]:
        return iter(self._options)

    def of(self, owner: str) -> tuple[BoundOption, ...]:
        """The options of one owner."""
        return tuple(bound for bound in self._options if bound.owner == owner)

    def owners(self) -> list[str]:
        """All owners that have options, the core left out."""
        return list(dict.fromkeys(bound.owner for bound in self._options if bound.owner != CORE))

    def flags(self) -> list[str]:
        """Every flag, negations of switches left out."""
        return [flag for bound in self._options for flag in bound.flags] + list(RESERVED_FLAGS)

    def find_flag(self, flag: str) -> BoundOption | None:
        """The option behind a flag or the negation of one."""
        return self._flags.get(flag)


def _owner(bound: BoundOption | None) -> str:
    return bound.label if bound is not None else "lattice itself"
