"""What the registry holds: a descriptor with its owner, and the plugins that failed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

if TYPE_CHECKING:
    from lattice_core.descriptors import Spec


@frozen(eq=False)
class Registration:
    """One part of a kind (``backend``, ``chat-format``, ...) and the plugin that brought it."""

    kind: str
    spec: Spec
    plugin: str
    distribution: str
    version: str
    first_party: bool = False

    @property
    def name(self) -> str:
        """The part's name."""
        return self.spec.name

    @property
    def full_name(self) -> str:
        """``DISTRIBUTION/NAME``, which is never ambiguous."""
        return f"{self.distribution}/{self.spec.name}"

    @property
    def label(self) -> str:
        """``backend 'mlx' (plugin mlx, lattice-engine 0.1.0)``."""
        return f"{self.kind} {self.spec.name!r} (plugin {self.plugin}, {self.distribution} {self.version})"


@frozen
class Failure:
    """A plugin that failed to load, and why."""

    plugin: str
    distribution: str
    cause: str
