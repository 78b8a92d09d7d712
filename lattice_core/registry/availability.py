"""Whether what a part requires is installed, found out without importing it."""

from __future__ import annotations

import sys
from importlib.machinery import PathFinder
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lattice_core.descriptors import Spec


def is_importable(name: str) -> bool:
    """Whether module ``name`` can be found. Unlike ``find_spec`` alone, no parent package of a dotted name is imported."""
    if name in sys.modules:
        return sys.modules[name] is not None
    top, *rest = name.split(".")
    try:
        spec = find_spec(top)
    except (ImportError, ValueError):
        return False
    full = top
    for part in rest:
        if spec is None or spec.submodule_search_locations is None:
            return False
        full = f"{full}.{part}"
        spec = PathFinder.find_spec(full, list(spec.submodule_search_locations))
    return spec is not None


def missing(spec: Spec) -> tuple[str, ...]:
    """The required import names that are not installed."""
    return tuple(name for name in spec.requires if not is_importable(name))


def unavailable(spec: Spec) -> str:
    """``unavailable: needs mlx; pip install ...``, or nothing where all that it requires is there."""
    names = missing(spec)
    if not names:
        return ""
    return f"unavailable: needs {', '.join(names)}" + (f"; {spec.install}" if spec.install else "")
