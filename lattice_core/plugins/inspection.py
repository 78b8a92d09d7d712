"""Checks one plugin before and after its hooks are called; every finding is a one-line cause.

Owns the rules of what a plugin may be; knows nothing of other plugins or of entry points.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lattice_core import API_VERSION
from lattice_core.nearest import did_you_mean
from lattice_core.plugins.records import HOOKS, Provided

if TYPE_CHECKING:
    from pluggy import PluginManager


class PluginFaultError(Exception):
    """Why a plugin cannot be used, in one line."""


def check_api_version(plugin: object) -> None:
    """Raise ``PluginFaultError`` where the plugin states another version of the plugin API."""
    stated = getattr(plugin, "LATTICE_API_VERSION", API_VERSION)
    if isinstance(stated, bool) or stated != API_VERSION:
        msg = f"it is written for plugin API version {stated!r}; this Lattice has version {API_VERSION}"
        raise PluginFaultError(msg)


def check_hooks(manager: PluginManager, plugin: object) -> None:
    """Raise ``PluginFaultError`` for marked functions that are no hook, wrappers, and hooks that are not marked."""
    implemented = 0
    for attribute in dir(plugin):
        options = manager.parse_hookimpl_opts(plugin, attribute)
        if options is None:
            _check_unmarked(plugin, attribute)
            continue
        name = options.get("specname") or attribute
        if name not in HOOKS:
            msg = f"{attribute} is no hook{did_you_mean(name, HOOKS)}; the hooks are {', '.join(HOOKS)}"
            raise PluginFaultError(msg)
        if options.get("wrapper") or options.get("hookwrapper"):
            msg = f"{attribute} is a wrapper; hooks of lattice only collect records, and a wrapper would change those of others"
            raise PluginFaultError(msg)
        implemented += 1
    if not implemented:
        msg = f"it implements no hook; mark one of {', '.join(HOOKS)} with lattice_core.hookimpl"
        raise PluginFaultError(msg)


def _check_unmarked(plugin: object, attribute: str) -> None:
    if attribute not in HOOKS:
        return
    if callable(getattr(plugin, attribute, None)):
        msg = f"{attribute} is not marked with lattice_core.hookimpl"
        raise PluginFaultError(msg)


def checked_records(hook: str, returned: Any) -> list[Provided]:
    """The records that a hook returned; raises ``PluginFaultError`` for anything that is not its type of record."""
    kind, wanted = HOOKS[hook]
    if isinstance(returned, wanted) or not hasattr(returned, "__iter__") or isinstance(returned, str | bytes):
        msg = f"{hook} returned {_describe(returned)}; it must return an iterable of {wanted.__name__}"
        raise PluginFaultError(msg)
    provided: list[Provided] = []
    for record in returned:
        if not isinstance(record, wanted):
            msg = f"{hook} returned {_describe(record)}; it must return only {wanted.__name__}"
            raise PluginFaultError(msg)
        if any(record.name == other.spec.name for other in provided):
            msg = f"{hook} returned the {kind} {record.name!r} twice"
            raise PluginFaultError(msg)
        provided.append(Provided(kind, record, hook))
    return provided


def _describe(value: object) -> str:
    return "None" if value is None else f"a {type(value).__name__}"
