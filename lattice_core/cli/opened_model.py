"""Finds and opens the model of a run: path, loader, checkpoint, the name that it is served under. Loads no weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from attrs import frozen

from lattice_core.cli.served_model import OtherTokenizer, model_path, served_name
from lattice_core.descriptors import Settings
from lattice_core.errors import ModelError, PluginError
from lattice_core.registry import attributed, call, make, select_loader

if TYPE_CHECKING:
    from pathlib import Path

    from lattice_core.cli.parts import Parts
    from lattice_core.cli.session import Session
    from lattice_core.descriptors import BackendSpec
    from lattice_core.protocols import Checkpoint
    from lattice_core.registry import Registration


@frozen
class Located:
    """Where the model is, and what opens it. Both None: the backend brings its own checkpoint."""

    path: Path | None = None
    loader: Registration | None = None


@frozen
class OpenedModel:
    """An opened checkpoint; ``origin`` says in a log line where it came from."""

    checkpoint: Checkpoint
    name: str
    origin: str


def locate(session: Session, parts: Parts) -> Located:
    """The model's path and loader. Raises ``ModelError`` with the way to get a model, ``PluginError`` for the loader."""
    if parts.consumes == "nothing":
        return Located()
    values = session.values
    aliases = {alias: words for spec in session.sources().values() for alias, words in spec.aliases.items()}
    path = model_path(values.core, values.core_sources, session.environ, aliases)
    if parts.consumes == "path":
        return Located(path)
    return Located(path, parts.loader or select_loader(session.registry, path))


def open_model(session: Session, parts: Parts, located: Located) -> OpenedModel:
    """Open what ``locate`` found. Raises ``ModelError``, or ``PluginError`` where the loader fails in another way."""
    core = session.values.core
    path = located.path
    if located.loader is not None and path is not None:
        checkpoint = open_with(session, located.loader, path)
    else:
        checkpoint = _made_by_backend(session, parts.backend, path)
    if core["tokenizer-dir"] is not None:
        checkpoint = OtherTokenizer(checkpoint, core["tokenizer-dir"])
    name = name_of(session, parts, located)
    return OpenedModel(checkpoint, name, f"model {name!r}" if path is None else f"model from {path}")


def name_of(session: Session, parts: Parts, located: Located) -> str:
    """The name that the model is served under."""
    if located.path is None:
        return session.values.core["model"] or parts.backend.name
    return served_name(located.path, session.environ)


def open_with(session: Session, loader: Registration, path: Path) -> Checkpoint:
    """The checkpoint that ``loader`` finds at ``path``. Raises as ``open_model``."""
    made = make(loader, session.settings_for(loader.spec))
    with attributed(loader, f"open {path}"):
        try:
            opened: Checkpoint = made.open(path)
        except OSError as error:
            msg = f"{path} cannot be read: {error.strerror or error}"
            raise ModelError(msg) from error
    return opened


def _made_by_backend(session: Session, backend: Registration, path: Path | None) -> Checkpoint:
    """The checkpoint of a backend that needs no loader; one that wants a path finds it as the core option ``model``."""
    spec = cast("BackendSpec", backend.spec)
    if spec.checkpoint is None:
        msg = f"{backend.label}: it consumes {spec.consumes} and so must have a checkpoint factory, but has none"
        raise PluginError(msg)
    settings = session.settings_for(spec)
    if path is not None:
        settings = Settings(settings.own, {**settings.core, "model": str(path)}, settings.sources)
    checkpoint: Checkpoint = call(backend, spec.checkpoint, "checkpoint", settings)
    return checkpoint
