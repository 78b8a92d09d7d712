"""The registry of parts: look-up by kind and name, selection by probe, and attributed calls of factories."""

from lattice_core.registry.availability import is_importable, missing, unavailable
from lattice_core.registry.calls import attributed, call, make
from lattice_core.registry.catalog import Registry
from lattice_core.registry.registration import Failure, Registration
from lattice_core.registry.selection import default_backend, select_adapter_loader, select_chat_format, select_loader

__all__ = [
    "Failure",
    "Registration",
    "Registry",
    "attributed",
    "call",
    "default_backend",
    "is_importable",
    "make",
    "missing",
    "select_adapter_loader",
    "select_chat_format",
    "select_loader",
    "unavailable",
]
