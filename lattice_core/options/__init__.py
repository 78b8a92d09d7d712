"""Options: one record gives the flag, the variable, the configuration key and the help; a fixed order decides the value."""

from lattice_core.options.binding import CORE, RESERVED_FLAGS, BoundOption, CollisionError, OptionTable, bind
from lattice_core.options.config_file import ConfigFile, find_config, read_config
from lattice_core.options.core_options import CORE_GROUPS, CORE_OPTIONS
from lattice_core.options.resolution import SOURCES, Values, resolve_options
from lattice_core.options.values import convert

__all__ = [
    "CORE",
    "CORE_GROUPS",
    "CORE_OPTIONS",
    "RESERVED_FLAGS",
    "SOURCES",
    "BoundOption",
    "CollisionError",
    "ConfigFile",
    "OptionTable",
    "Values",
    "bind",
    "convert",
    "find_config",
    "read_config",
    "resolve_options",
]
