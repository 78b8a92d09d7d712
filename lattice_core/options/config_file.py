"""Finds and reads the configuration file (TOML), and checks that every key in it belongs to an option.

Core options stand at the top level, a part's options in a table with the part's name; keys in kebab or snake case.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import field, frozen

from lattice_core.errors import UsageError
from lattice_core.nearest import did_you_mean
from lattice_core.options.binding import CORE

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from lattice_core.options.binding import OptionTable


@frozen
class ConfigFile:
    """A configuration file: values by owner and key, keys in kebab case. ``path`` None: there is none."""

    path: Path | None = None
    values: Mapping[str, Mapping[str, Any]] = field(factory=dict)

    def get(self, owner: str, key: str) -> Any:
        """The value, or None where the file has none (TOML has no null)."""
        return self.values.get(owner, {}).get(key)

    def where(self, owner: str, key: str) -> str:
        """How a message names a key."""
        return f"{self.path}: {f'[{owner}] ' if owner else ''}{key}"

    def check_keys(self, table: OptionTable, parts: Collection[str], *, complete: bool) -> list[str]:
        """Raise ``UsageError`` for a key that is no option; returns the tables that were passed over.

        ``parts`` are the names of all parts, also of those without options. Where plugins are left out (not ``complete``),
        nobody can say which tables are theirs, so unknown tables are passed over.
        """
        passed: list[str] = []
        for owner, entries in self.values.items():
            if owner != CORE and owner not in parts:
                if not complete:
                    passed.append(owner)
                    continue
                msg = f"{self.path}: unknown table [{owner}]{did_you_mean(owner, parts)}"
                raise UsageError(msg)
            known = [bound.key for bound in table.of(owner) if bound.dest != f"{CORE}:config"]
            for key in entries:
                if key not in known:
                    msg = f"{self.where(owner, key)} is no option{did_you_mean(key, known)}"
                    raise UsageError(msg)
        return passed


def find_config(flag: str | None, environ: Mapping[str, str], directory: Path) -> Path | None:
    """``--config``, else ``LATTICE_CONFIG``, else ``lattice.toml`` in ``directory``, else the user's; None without any.

    The user's is ``$XDG_CONFIG_HOME/lattice/lattice.toml``, by default in ``~/.config``.
    """
    named = flag or environ.get("LATTICE_CONFIG")
    if named:
        return Path(named).expanduser()
    here = directory / "lattice.toml"
    if here.is_file():
        return here
    home = environ.get("XDG_CONFIG_HOME") or (f"{environ['HOME']}/.config" if environ.get("HOME") else "")
    users = Path(home) / "lattice" / "lattice.toml"
    return users if home and users.is_file() else None


def read_config(path: Path | None) -> ConfigFile:
    """The file's values. Raises ``UsageError`` where it is missing, unreadable, not TOML, or says a key twice."""
    if path is None:
        return ConfigFile()
    import tomllib  # noqa: PLC0415  # most runs have no configuration file

    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        msg = f"configuration file {path} cannot be read: {error.strerror or error}"
        raise UsageError(msg) from error
    except ValueError as error:
        msg = f"configuration file {path} is not TOML: {error}"
        raise UsageError(msg) from error
    values: dict[str, dict[str, Any]] = {CORE: {}}
    for name, value in data.items():
        if isinstance(value, dict):
            entries = values.setdefault(name, {})
            for key, inner in value.items():
                _put(entries, key, inner, path)
        else:
            _put(values[CORE], name, value, path)
    return ConfigFile(path, values)


def _put(entries: dict[str, Any], name: str, value: Any, path: Path) -> None:
    key = name.replace("_", "-")
    if key in entries:
        msg = f"{path}: {key} is set twice, once with - and once with _"
        raise UsageError(msg)
    entries[key] = value
