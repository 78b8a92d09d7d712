"""Finds entry points of the group ``lattice`` in the metadata of all installed distributions.

Owns the reading of metadata, one distribution and one line at a time, so that a broken file costs only itself. Imports no
plugin and knows nothing of hooks. Format: the entry-points specification of the Python packaging guide (``[group]`` sections
of ``name = module:attr [extras]`` lines).
"""

from __future__ import annotations

import re
from importlib import metadata
from typing import TYPE_CHECKING

from attrs import frozen

from lattice_core.causes import cause_of

if TYPE_CHECKING:
    from collections.abc import Iterator

GROUP = "lattice"
_TARGET = re.compile(r"(?P<module>[\w.]+)\s*(:\s*(?P<attr>[\w.]+))?\s*(\[.*\])?")


@frozen
class Found:
    """One entry point. ``problem`` says why it cannot even be tried; then ``target`` is whatever stood in the file."""

    name: str
    target: str
    distribution: str
    version: str
    problem: str = ""


def normalized(distribution: str) -> str:
    """A distribution name as the packaging guide compares them: lower case, runs of ``-_.`` as one ``-``."""
    return re.sub(r"[-_.]+", "-", distribution).lower()


def discover() -> list[Found]:
    """All entry points of the group, in the order of ``sys.path``; the same distribution found twice counts once."""
    found: list[Found] = []
    seen: set[str] = set()
    for distribution in metadata.distributions():
        try:
            text = distribution.read_text("entry_points.txt")
        except (OSError, ValueError) as error:
            name, version = _identity(distribution)
            found.append(Found(name, "", name, version, f"entry_points.txt cannot be read: {cause_of(error)}"))
            continue
        if text is None or f"[{GROUP}]" not in text.replace(" ", ""):
            continue
        name, version = _identity(distribution)
        if normalized(name) in seen or _is_shadowed(name, version):
            continue
        seen.add(normalized(name))
        found.extend(_entries(text, name, version))
    return found


def _identity(distribution: metadata.Distribution) -> tuple[str, str]:
    try:
        fields = distribution.metadata
        name, version = fields["Name"], fields["Version"]
    except Exception:  # noqa: BLE001  # a finder may raise anything over broken metadata, which must cost only itself
        return _folder(distribution), "unknown"
    return str(name or _folder(distribution)), str(version or "unknown")


def _folder(distribution: metadata.Distribution) -> str:
    """What is left to name a distribution by whose metadata has no name: its ``.dist-info`` folder."""
    path = getattr(distribution, "_path", None)
    return str(getattr(path, "name", None) or "unknown").removesuffix(".dist-info")


def _is_shadowed(name: str, version: str) -> bool:
    """Whether an earlier distribution of the same name on ``sys.path`` hides this one."""
    try:
        first = metadata.distribution(name)
    except (metadata.PackageNotFoundError, ValueError):
        return False
    return _identity(first)[1] != version


def _entries(text: str, distribution: str, version: str) -> Iterator[Found]:
    section = ""
    names: set[str] = set()
    for raw in text.splitlines():
        line = raw.strip()
        if not line or line.startswith(("#", ";")):
            continue
        if line.startswith("[") and line.endswith("]"):
            section = line[1:-1].strip()
            continue
        if section != GROUP:
            continue
        name, equals, target = (part.strip() for part in line.partition("="))
        problem = ""
        if not equals or not name or _TARGET.fullmatch(target) is None:
            problem = f"entry_points.txt: {line[:80]!r} is not NAME = MODULE or NAME = MODULE:ATTRIBUTE"
        elif name in names:
            problem = f"entry_points.txt: the name {name!r} stands twice in [{GROUP}]"
        names.add(name)
        yield Found(name or line[:40], target, distribution, version, problem)
