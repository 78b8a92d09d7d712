"""What the host knows of each plugin: plain immutable records. No loading, no metadata."""

from __future__ import annotations

from enum import StrEnum

from attrs import evolve, frozen

from lattice_core.descriptors import (
    ArchitectureSpec,
    BackendSpec,
    ChatFormatSpec,
    CommandSpec,
    FrontendSpec,
    GrammarSpec,
    LoaderSpec,
    SamplerSpec,
    SourceSpec,
    Spec,
    TelemetrySpec,
)

FIRST_PARTY = "lattice-engine"
"""The distribution whose names are reserved."""

HOOKS: dict[str, tuple[str, type[Spec]]] = {
    "lattice_loaders": ("loader", LoaderSpec),
    "lattice_backends": ("backend", BackendSpec),
    "lattice_architectures": ("architecture", ArchitectureSpec),
    "lattice_samplers": ("sampler", SamplerSpec),
    "lattice_grammars": ("grammar", GrammarSpec),
    "lattice_chat_formats": ("chat-format", ChatFormatSpec),
    "lattice_frontends": ("frontend", FrontendSpec),
    "lattice_model_sources": ("source", SourceSpec),
    "lattice_commands": ("command", CommandSpec),
    "lattice_telemetry": ("telemetry", TelemetrySpec),
}
"""Each hook's kind of part, in words, and the type of record that it returns."""


class Status(StrEnum):
    """What became of a plugin."""

    LOADED = "loaded"
    FAILED = "failed"
    DISABLED = "disabled"


@frozen
class Provided:
    """One part that a plugin registers, and the hook that returned it."""

    kind: str
    spec: Spec
    hook: str


@frozen
class PluginRecord:
    """One plugin: its entry point, where it comes from and what became of it.

    ``cause`` is one line, for a failed or disabled plugin; ``error`` is the exception behind it, where there was one.
    """

    name: str
    module: str
    distribution: str
    version: str
    first_party: bool
    status: Status
    provides: tuple[Provided, ...] = ()
    cause: str = ""
    error: BaseException | None = None

    def failed(self, cause: str, error: BaseException | None = None) -> PluginRecord:
        """The same plugin, failed: it provides nothing any more."""
        return evolve(self, status=Status.FAILED, provides=(), cause=cause, error=error)

    @property
    def label(self) -> str:
        """``name (distribution version)``."""
        return f"{self.name} ({self.distribution} {self.version})"
