"""The plugin host: discovery by entry points, loading in isolation, and a record of every plugin's fate."""

from lattice_core.plugins.discovery import Found, discover, normalized
from lattice_core.plugins.host import PluginHost, Selection
from lattice_core.plugins.records import FIRST_PARTY, HOOKS, PluginRecord, Provided, Status

__all__ = [
    "FIRST_PARTY",
    "HOOKS",
    "Found",
    "PluginHost",
    "PluginRecord",
    "Provided",
    "Selection",
    "Status",
    "discover",
    "normalized",
]
