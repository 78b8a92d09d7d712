"""What one run of ``lattice`` knows once plugins are loaded: plugins, registry, options. Handed to commands as their context.

Composes the three parts that know nothing of one another (plugin host, registry, options). Loads no model.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, cast

from lattice_core.cli.adapters import open_adapter
from lattice_core.cli.log import set_up_logging
from lattice_core.cli.opened_model import open_with
from lattice_core.cli.served_model import OtherTokenizer, model_path
from lattice_core.descriptors import ArchitectureSpec, BackendSpec, Settings, SourceSpec, Spec
from lattice_core.errors import PluginError
from lattice_core.model_names import resolve_model
from lattice_core.options import (
    CORE,
    CORE_OPTIONS,
    CollisionError,
    ConfigFile,
    OptionTable,
    Values,
    bind,
    find_config,
    read_config,
    resolve_options,
)
from lattice_core.plugins import Status
from lattice_core.registry import Failure, Registration, Registry, default_backend, make, select_loader

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lattice_core.cli.command_line import Early, Flags
    from lattice_core.options import BoundOption
    from lattice_core.plugins import PluginHost, PluginRecord
    from lattice_core.protocols import AdapterCheckpoint, Backend, Checkpoint

log = logging.getLogger("lattice")


class Session:
    """Plugins, registry and option table of one run; after ``resolve`` also the options' values.

    ``collision`` is set where two plugins of strangers claim one flag: nothing that needs options can run then.
    """

    def __init__(self, host: PluginHost, environ: Mapping[str, str], early: Early) -> None:
        self.environ = environ
        self.early = early
        self.collision: CollisionError | None = None
        self.config = ConfigFile()
        self._values: Values | None = None
        self.host, self.registry, self.table = self._composed(host)

    # ------------------------------------------------------------------------------------ what commands may use

    @property
    def debug(self) -> bool:
        """Whether tracebacks are wanted."""
        return self.early.debug or bool(self._values is not None and self._values.core.get("debug"))

    def sources(self) -> Mapping[str, SourceSpec]:
        """The model sources by name."""
        return {self.registry.public_name(part): cast("SourceSpec", part.spec) for part in self.registry.all("source")}

    def settings_for(self, spec: Spec) -> Settings:
        """The settings that the factory of ``spec`` is called with."""
        values = self.values
        owner = next((self.owner_of(part) for part in self.registry.everything() if part.spec is spec), spec.name)
        own = values.own(owner)
        return Settings(
            own={option.name: own.get(option.name, option.default) for option in spec.options},
            core=values.core,
            sources=values.core_sources,
            architectures=self._architectures(spec.name) if isinstance(spec, BackendSpec) else {},
        )

    def open_checkpoint(self, reference: str, loader: str | None = None) -> tuple[Path, Checkpoint]:
        """Open a model that is named as ``--model`` names one: its path and checkpoint. For commands; loads no weights.

        ``loader`` names one, else the files decide. Raises ``ModelError``, ``PluginError``.
        """
        aliases = {alias: words for spec in self.sources().values() for alias, words in spec.aliases.items()}
        path = Path(os.path.abspath(resolve_model(reference, environ=self.environ, aliases=aliases)))  # noqa: PTH100  # `resolve` would follow links and change the model's name
        part = self.registry.require("loader", loader) if loader is not None else select_loader(self.registry, path)
        return path, open_with(self, part, path)

    def open_model(self, reference: str | None = None) -> tuple[Path, Checkpoint]:
        """As ``open_checkpoint``, for a command that shares the options ``loader`` and ``tokenizer-dir``, which count.

        Without a ``reference`` the options ``model`` and ``model-dir`` say which model. Raises ``ModelError``, ``PluginError``.
        """
        core = self.values.core
        if reference is None:
            aliases = {alias: words for spec in self.sources().values() for alias, words in spec.aliases.items()}
            reference = str(model_path(core, self.values.core_sources, self.environ, aliases))
        path, checkpoint = self.open_checkpoint(reference, core["loader"])
        return path, checkpoint if core["tokenizer-dir"] is None else OtherTokenizer(checkpoint, core["tokenizer-dir"])

    def open_adapter(self, path: Path) -> AdapterCheckpoint:
        """Open the adapter at ``path``. Raises ``ModelError``, ``PluginError``."""
        return open_adapter(self, path)

    def make_backend(self, name: str | None = None) -> Backend:
        """A backend for a command that runs a model itself, on the calling thread. Raises ``PluginError``, ``UsageError``."""
        part = self.registry.require("backend", name) if name is not None else default_backend(self.registry)
        made: Backend = make(part, self.settings_for(part.spec))
        return made

    # ------------------------------------------------------------------------------------ options

    @property
    def values(self) -> Values:
        """The options' values; without a call of ``resolve`` those without any flag."""
        if self._values is None:
            self._values = resolve_options(self.table, {}, self.environ, self.config)
        return self._values

    def owner_of(self, part: Registration) -> str:
        """How the part's options are prefixed."""
        return self.registry.public_name(part)

    def check(self) -> None:
        """Raise ``PluginError`` where the selection names an unknown plugin or two plugins claim one flag."""
        self.host.check_selection()
        if self.collision is not None:
            raise self.collision

    def resolve(self, flags: Flags) -> Values:
        """Read the configuration file and decide every option. Raises ``UsageError``."""
        self.config = read_config(find_config(flags.text(f"{CORE}:config"), self.environ, Path.cwd()))
        names = {self.owner_of(part) for part in self.registry.everything()}
        complete = len(self.host.loaded) == len(self.host.records)
        passed = self.config.check_keys(self.table, names, complete=complete)
        if passed:
            log.warning("%s: no part that is loaded owns the table(s) %s", self.config.path, ", ".join(passed))
        self._values = resolve_options(self.table, flags.given, self.environ, self.config)
        set_up_logging(debug=self.debug)
        return self._values

    # ------------------------------------------------------------------------------------ composition

    def _architectures(self, backend: str) -> dict[str, ArchitectureSpec]:
        parts = [part for part in self.registry.all("architecture") if cast("ArchitectureSpec", part.spec).backend == backend]
        return {self.registry.public_name(part): cast("ArchitectureSpec", part.spec) for part in parts}

    def _composed(self, host: PluginHost) -> tuple[PluginHost, Registry, OptionTable]:
        """Registry and options; a stranger that claims a flag of the core or of the first party fails here, wholly."""
        while True:
            registry = registry_of(host)
            table = OptionTable()
            table.add(bind(option) for option in CORE_OPTIONS)
            self.collision = None
            failed: tuple[PluginRecord, str] | None = None
            for record in host.loaded:
                try:
                    table.add(_bound(registry, record))
                except CollisionError as error:
                    if error.reserved:
                        failed = (record, str(error))
                        break
                    self.collision = error
                except PluginError as error:
                    failed = (record, str(error))
                    break
            if failed is None:
                return host, registry, table
            host = host.with_failed(*failed)


def registry_of(host: PluginHost) -> Registry:
    """The registry of all that loaded plugins provide."""
    return Registry(
        (
            Registration(
                kind=provided.kind,
                spec=provided.spec,
                plugin=record.name,
                distribution=record.distribution,
                version=record.version,
                first_party=record.first_party,
            )
            for record in host.loaded
            for provided in record.provides
        ),
        (Failure(record.name, record.distribution, record.cause) for record in host.failures),
        (record.name for record in host.records if record.status is Status.DISABLED),
    )


def _bound(registry: Registry, record: PluginRecord) -> list[BoundOption]:
    """The options of one plugin's parts. Parts of one name may share an option by giving the same record."""
    mine = {id(provided.spec) for provided in record.provides}
    bound: dict[str, BoundOption] = {}
    options: list[BoundOption] = []
    for part in registry.everything():
        if id(part.spec) not in mine:
            continue
        for option in part.spec.options:
            one = bind(option, registry.public_name(part), part.label, reserved=part.first_party)
            if one.dest in bound and bound[one.dest].option == option:
                continue
            bound[one.dest] = one
            options.append(one)
    return options
