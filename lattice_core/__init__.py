"""The core of Lattice: composition, scheduling and contracts. It imports no backend and no frontend."""

from pluggy import HookimplMarker

__version__ = "0.1.0"

API_VERSION = 1
"""The version of the plugin API: one small integer that a plugin may state as ``LATTICE_API_VERSION``."""

hookimpl = HookimplMarker("lattice")
"""Marks a function of a plugin module as the implementation of a hook (see ``lattice_core.hookspecs``)."""

__all__ = ["API_VERSION", "__version__", "hookimpl"]
