"""The adapters of a run: those that ``--lora`` names, and the way to open any. Loads no weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

from lattice_core.adapter_names import read_adapter_options
from lattice_core.errors import AdapterError, ModelError, PluginError
from lattice_core.protocols import AdapterLoader
from lattice_core.registry import attributed, make, select_adapter_loader
from lattice_core.types import MODEL_ALIAS

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from lattice_core.adapter_names import AdapterOption
    from lattice_core.cli.session import Session
    from lattice_core.engine import Engine
    from lattice_core.protocols import AdapterCheckpoint
    from lattice_core.registry import Registration


@frozen
class LocatedAdapter:
    """An adapter of the command line and the loader that opens it."""

    option: AdapterOption
    loader: Registration


def locate_adapters(session: Session, model_id: str) -> list[LocatedAdapter]:
    """What ``--lora`` names, found before any weight is loaded. Raises ``UsageError``, ``AdapterError``, ``PluginError``."""
    options = read_adapter_options(session.values.core["lora"], (model_id, MODEL_ALIAS))
    return [LocatedAdapter(option, _loader(session, option)) for option in options]


def load_adapters(engine: Engine, located: Iterable[LocatedAdapter]) -> None:
    """Make them resident. Raises ``AdapterError`` and its kinds for the first that cannot be."""
    for adapter in located:
        option = adapter.option
        engine.load_adapter(option.name, option.path, default=option.default)


def open_adapter(session: Session, path: Path) -> AdapterCheckpoint:
    """The adapter at ``path``, opened by the loader that knows it. Raises ``ModelError``, ``PluginError``."""
    loader = select_adapter_loader(session.registry, path)
    made = make(loader, session.settings_for(loader.spec))
    if not isinstance(made, AdapterLoader):
        msg = f"{loader.label}: it has an adapter_probe and must have open_adapter, but its factory made something without"
        raise PluginError(msg)
    with attributed(loader, f"open_adapter {path}"):
        try:
            return made.open_adapter(path)
        except OSError as error:
            msg = f"{path} cannot be read: {error.strerror or error}"
            raise ModelError(msg) from error


def _loader(session: Session, option: AdapterOption) -> Registration:
    try:
        return select_adapter_loader(session.registry, option.path)
    except AdapterError as error:
        msg = f"--lora: {error.message}"
        raise AdapterError(msg, param="lora") from error
