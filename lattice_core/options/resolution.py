"""Decides the value of every option: flag, then environment, then configuration file, then default."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import frozen

from lattice_core.options.binding import CORE
from lattice_core.options.values import convert

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lattice_core.options.binding import BoundOption
    from lattice_core.options.config_file import ConfigFile

SOURCES = ("flag", "environment", "config", "default")
"""Where a value may come from, strongest first."""


@frozen
class Values:
    """Resolved values by owner and option name, and where each came from."""

    values: Mapping[str, Mapping[str, Any]]
    origins: Mapping[str, Mapping[str, str]]

    @property
    def core(self) -> Mapping[str, Any]:
        """The core's options."""
        return self.values.get(CORE, {})

    @property
    def core_sources(self) -> Mapping[str, str]:
        """Where the core's values came from."""
        return self.origins.get(CORE, {})

    def own(self, owner: str) -> Mapping[str, Any]:
        """The options of one part."""
        return self.values.get(owner, {})


def resolve_options(
    options: Iterable[BoundOption],
    flags: Mapping[str, Sequence[tuple[str, str]]],
    environ: Mapping[str, str],
    config: ConfigFile,
) -> Values:
    """The value of each option. Raises ``UsageError`` for the first that does not parse or is out of range.

    ``flags`` holds by ``dest`` what the command line said: pairs of the flag as it was written and its text, the last one
    wins. A variable that is set but empty counts as not set.
    """
    values: dict[str, dict[str, Any]] = {CORE: {}}
    origins: dict[str, dict[str, str]] = {CORE: {}}
    for bound in options:
        value, origin = _value_of(bound, flags.get(bound.dest, ()), environ, config)
        values.setdefault(bound.owner, {})[bound.option.name] = value
        origins.setdefault(bound.owner, {})[bound.option.name] = origin
    return Values(values, origins)


def _value_of(
    bound: BoundOption, given: Sequence[tuple[str, str]], environ: Mapping[str, str], config: ConfigFile
) -> tuple[Any, str]:
    option = bound.option
    if given:
        flag, text = given[-1]
        raw: Any = [item for _, item in given] if option.repeatable else text
        return convert(option, raw, flag), "flag"
    for variable in bound.variables:
        if environ.get(variable):
            return convert(option, environ[variable], variable), "environment"
    written = config.get(bound.owner, bound.key)
    if written is not None:
        return convert(option, written, config.where(bound.owner, bound.key)), "config"
    return (() if option.repeatable and option.default is None else option.default), "default"
