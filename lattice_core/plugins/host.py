"""Loads plugins one entry point at a time. A plugin that fails in any way is recorded and leaves nothing behind.

Owns isolation, disabling and the reservation of first-party names; knows nothing of options, of how parts are chosen or of
the command line.
"""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from importlib.metadata import EntryPoint
from io import StringIO
from typing import TYPE_CHECKING

from attrs import evolve, frozen
from pluggy import PluginManager, PluginValidationError

from lattice_core import hookspecs
from lattice_core.causes import cause_of
from lattice_core.errors import PluginError
from lattice_core.nearest import did_you_mean
from lattice_core.plugins.discovery import GROUP, Found, discover, normalized
from lattice_core.plugins.inspection import PluginFaultError, check_api_version, check_hooks, checked_records
from lattice_core.plugins.records import FIRST_PARTY, PluginRecord, Provided, Status
from lattice_core.plugins.reserved import COMMANDS_OF_THE_CORE, RESERVED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_OFF = frozenset({"", "0", "false", "no", "off"})


@frozen
class Selection:
    """Which plugins may load. ``disabled`` and ``allowed`` hold entry-point or distribution names.

    ``allowed`` None allows all; ``third_party`` False leaves out everything but the first-party distribution; ``strict``
    raises where a plugin would be recorded as failed.
    """

    disabled: tuple[str, ...] = ()
    allowed: tuple[str, ...] | None = None
    third_party: bool = True
    strict: bool = False

    @classmethod
    def of(cls, environ: Mapping[str, str], *, disabled: Iterable[str] = (), third_party: bool = True) -> Selection:
        """From ``LATTICE_PLUGINS`` (comma-separated allow-list) and ``LATTICE_STRICT_PLUGINS``."""
        listed = tuple(name.strip() for name in environ.get("LATTICE_PLUGINS", "").split(",") if name.strip())
        strict = environ.get("LATTICE_STRICT_PLUGINS", "").strip().lower() not in _OFF
        return cls(tuple(disabled), listed or None, third_party, strict)


@frozen
class PluginHost:
    """What was found: every plugin with its fate, and names in the selection that match no plugin."""

    records: tuple[PluginRecord, ...]
    unknown: tuple[str, ...] = ()
    strict: bool = False

    @classmethod
    def load(cls, selection: Selection, found: Iterable[Found] | None = None) -> PluginHost:
        """Discover and load. Raises ``PluginError`` only where the selection is strict."""
        entries = sorted(
            discover() if found is None else found,
            key=lambda entry: (not _is_first_party(entry), normalized(entry.distribution), entry.name),
        )
        manager = PluginManager(GROUP)
        manager.add_hookspecs(hookspecs)
        records: list[PluginRecord] = []
        for entry in entries:
            record = _load(manager, entry, selection)
            if record.status is Status.LOADED:
                record = _without_conflict(record, records)
            if record.status is Status.FAILED:
                _unregister(manager, entry)
                if selection.strict:
                    raise _strict_error(record) from record.error
            records.append(record)
        return cls(tuple(records), _unknown(selection, entries), selection.strict)

    @property
    def failures(self) -> tuple[PluginRecord, ...]:
        """The plugins that failed."""
        return tuple(record for record in self.records if record.status is Status.FAILED)

    @property
    def loaded(self) -> tuple[PluginRecord, ...]:
        """The plugins that are in use."""
        return tuple(record for record in self.records if record.status is Status.LOADED)

    def with_failed(self, failed: PluginRecord, cause: str) -> PluginHost:
        """The same plugins, but ``failed`` is recorded as failed with ``cause``. Raises ``PluginError`` in strict mode."""
        if self.strict:
            raise _strict_error(failed.failed(cause))
        changed = tuple(record.failed(cause) if record is failed else record for record in self.records)
        return evolve(self, records=changed)

    def check_selection(self) -> None:
        """Raise ``PluginError`` where the selection names a plugin that is not installed."""
        if self.unknown:
            names = sorted({record.name for record in self.records})
            first = self.unknown[0]
            msg = f"no plugin is named {first!r}{did_you_mean(first, names)}; installed: {', '.join(names) or 'none'}"
            raise PluginError(msg)


def _strict_error(record: PluginRecord) -> PluginError:
    return PluginError(f"plugin {record.label} failed (LATTICE_STRICT_PLUGINS is set): {record.cause}")


def _is_first_party(entry: Found) -> bool:
    return normalized(entry.distribution) == FIRST_PARTY


def _key(entry: Found) -> str:
    return f"{normalized(entry.distribution)}/{entry.name}"


def _matches(name: str, entry: Found) -> bool:
    return name in (entry.name, _key(entry)) or normalized(name) == normalized(entry.distribution)


def _unknown(selection: Selection, entries: Iterable[Found]) -> tuple[str, ...]:
    known = list(entries)
    named = (*selection.disabled, *(selection.allowed or ()))
    return tuple(dict.fromkeys(name for name in named if not any(_matches(name, entry) for entry in known)))


def _disabled_because(entry: Found, selection: Selection) -> str:
    for name in selection.disabled:
        if _matches(name, entry):
            return f"-p no:{name}"
    if selection.allowed is not None and not any(_matches(name, entry) for name in selection.allowed):
        return "not in LATTICE_PLUGINS"
    if not selection.third_party and not _is_first_party(entry):
        return "--no-plugins"
    return ""


def _load(manager: PluginManager, entry: Found, selection: Selection) -> PluginRecord:
    record = PluginRecord(
        name=entry.name,
        module=entry.target,
        distribution=entry.distribution,
        version=entry.version,
        first_party=_is_first_party(entry),
        status=Status.LOADED,
    )
    reason = _disabled_because(entry, selection)
    if reason:
        return evolve(record, status=Status.DISABLED, cause=reason)
    if entry.problem:
        return record.failed(entry.problem)
    try:
        # What a plugin prints while it loads must not get into an answer or a JSON document.
        with redirect_stdout(sys.stderr or StringIO()):
            return evolve(record, provides=_registered(manager, entry))
    except KeyboardInterrupt:
        raise
    except PluginFaultError as error:
        return record.failed(str(error), error)
    except PluginValidationError as error:
        return record.failed(" ".join(str(error).split()), error)
    except BaseException as error:  # noqa: BLE001  # SystemExit and whatever else foreign code raises must cost only itself
        return record.failed(cause_of(error), error)


def _registered(manager: PluginManager, entry: Found) -> tuple[Provided, ...]:
    plugin = EntryPoint(name=entry.name, value=entry.target, group=GROUP).load()
    check_api_version(plugin)
    check_hooks(manager, plugin)
    if manager.is_registered(plugin):
        msg = f"{entry.target} is already registered as {manager.get_name(plugin)}"
        raise PluginFaultError(msg)
    manager.register(plugin, name=_key(entry))
    provided: list[Provided] = []
    for caller in manager.get_hookcallers(plugin) or []:
        # Called one plugin at a time, so that an error has one owner.
        for implementation in caller.get_hookimpls():
            if implementation.plugin is plugin:
                provided.extend(checked_records(caller.name, implementation.function()))
    return tuple(provided)


def _unregister(manager: PluginManager, entry: Found) -> None:
    plugin = manager.get_plugin(_key(entry))
    if plugin is not None:
        manager.unregister(plugin)


def _without_conflict(record: PluginRecord, earlier: Sequence[PluginRecord]) -> PluginRecord:
    """The record, or its failure where it claims a name that is reserved or that its own distribution has already."""
    if not record.first_party and any(other.first_party and other.name == record.name for other in earlier):
        return record.failed(f"the plugin name {record.name!r} is reserved for {FIRST_PARTY}: rename the entry point")
    for provided in record.provides:
        kind, name = provided.kind, provided.spec.name
        if kind == "command" and name in COMMANDS_OF_THE_CORE:
            return record.failed(f"the command {name!r} belongs to lattice itself")
        if not record.first_party and name in RESERVED.get(kind, ()):
            return record.failed(f"the {kind} name {name!r} is reserved for {FIRST_PARTY}")
        for other in earlier:
            if not any(mine.kind == kind and mine.spec.name == name for mine in other.provides):
                continue
            if other.first_party and not record.first_party:
                return record.failed(f"the {kind} name {name!r} is reserved for {FIRST_PARTY}")
            if normalized(other.distribution) == normalized(record.distribution):
                return record.failed(f"the {kind} {name!r} is already registered by the plugin {other.name!r}")
    return record
