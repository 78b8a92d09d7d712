"""All registered parts by kind and name.

Owns look-up, ambiguity and availability. Knows nothing of how plugins are loaded or where option values come from.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from lattice_core.errors import PluginError
from lattice_core.nearest import did_you_mean
from lattice_core.registry.availability import unavailable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lattice_core.registry.registration import Failure, Registration


class Registry:
    """Parts by kind and name. Immutable after construction."""

    def __init__(
        self, registrations: Iterable[Registration], failures: Iterable[Failure] = (), left_out: Iterable[str] = ()
    ) -> None:
        """``failures`` and ``left_out`` (plugins disabled on purpose) are for messages about unknown names."""
        self._registrations = tuple(registrations)
        self._failures = tuple(failures)
        self._left_out = tuple(left_out)

    def all(self, kind: str) -> tuple[Registration, ...]:
        """All parts of a kind, in the order in which their plugins were loaded (first-party first)."""
        return tuple(part for part in self._registrations if part.kind == kind)

    def everything(self) -> tuple[Registration, ...]:
        """All parts of all kinds."""
        return self._registrations

    def is_ambiguous(self, part: Registration) -> bool:
        """Whether another distribution brings a part of the same kind and name."""
        return sum(other.kind == part.kind and other.name == part.name for other in self._registrations) > 1

    def public_name(self, part: Registration) -> str:
        """The shortest name that selects exactly this part."""
        return part.full_name if self.is_ambiguous(part) else part.name

    def names(self, kind: str) -> list[str]:
        """The names that ``find`` accepts, sorted."""
        return sorted(self.public_name(part) for part in self.all(kind))

    def find(self, kind: str, name: str) -> Registration:
        """The part called ``name`` or ``DISTRIBUTION/NAME``.

        Raises ``PluginError`` that lists the choices, the nearest one and the plugins that failed; or, for a name that two
        distributions use, names both.
        """
        if "/" in name:
            distribution, _, bare = name.rpartition("/")
            found = [
                part
                for part in self.all(kind)
                if part.name == bare and _normalized(part.distribution) == _normalized(distribution)
            ]
        else:
            found = [part for part in self.all(kind) if part.name == name]
        if len(found) > 1:
            raise PluginError(self._ambiguous(kind, name, found))
        if not found:
            raise PluginError(self._unknown(kind, name))
        return found[0]

    def require(self, kind: str, name: str) -> Registration:
        """As ``find``, but the part's requirements must be installed. Raises ``PluginError`` with the way to install them."""
        return self.check_available(self.find(kind, name))

    def check_available(self, part: Registration) -> Registration:
        """The part itself. Raises ``PluginError`` where something that it requires is not installed."""
        reason = unavailable(part.spec)
        if reason:
            msg = f"{part.kind} {self.public_name(part)!r} is {reason}"
            raise PluginError(msg)
        return part

    def absent_note(self) -> str:
        """``; plugins that failed to load: x (cause); plugins left out: y``, or nothing."""
        note = ""
        if self._failures:
            note += "; plugins that failed to load: " + "; ".join(f"{item.plugin} ({item.cause})" for item in self._failures)
        if self._left_out:
            note += "; plugins left out: " + ", ".join(self._left_out)
        return note

    def _unknown(self, kind: str, name: str) -> str:
        names = self.names(kind)
        choices = ", ".join(names) or "none"
        return f"unknown {kind} {name!r}{did_you_mean(name, names)}; choose from: {choices}{self.absent_note()}"

    @staticmethod
    def _ambiguous(kind: str, name: str, found: Iterable[Registration]) -> str:
        owners = " and ".join(f"{part.distribution} {part.version} (plugin {part.plugin})" for part in found)
        choices = " or ".join(part.full_name for part in found)
        return f"the {kind} name {name!r} is ambiguous: {owners} both bring it; say {choices}"


def _normalized(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()
