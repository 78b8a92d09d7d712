"""Composes and runs an engine: backend, sampler, chat format, frontend. The only place that knows all parts."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from attrs import frozen

from lattice_core.adapters import AdapterLimits
from lattice_core.causes import cause_of
from lattice_core.cli.adapters import load_adapters, locate_adapters, open_adapter
from lattice_core.cli.log import LoadingProgress
from lattice_core.cli.opened_model import Located, OpenedModel, locate, name_of, open_model
from lattice_core.cli.parts import check_flags_are_used, choose_parts
from lattice_core.cli.signals import Stop, end_on_signals, stop_on_signals
from lattice_core.engine import Engine, EngineConfig
from lattice_core.errors import ExitCode, LatticeError, ModelError, PluginError, UnsupportedFeatureError
from lattice_core.registry import attributed, make, select_chat_format, unavailable
from lattice_core.types import Limits

if TYPE_CHECKING:
    from collections.abc import Callable

    from lattice_core.cli.adapters import LocatedAdapter
    from lattice_core.cli.command_line import Flags
    from lattice_core.cli.parts import Parts
    from lattice_core.cli.session import Session
    from lattice_core.protocols import Backend, ChatFormat, Checkpoint, Frontend, Grammar, Model, Observer, Vocabulary
    from lattice_core.registry import Registration

log = logging.getLogger("lattice")


def run_engine(session: Session, command: str | None, flags: Flags) -> int:
    """Load the model, serve it with the chosen frontend and return the exit status. Raises ``LatticeError``."""
    session.check()
    values = session.resolve(flags)
    parts = choose_parts(session, command, values)
    for record in session.host.failures:
        log.warning("plugin %s failed and is left out: %s", record.label, record.cause)
    with end_on_signals(lambda: None):
        located = locate(session, parts)
        adapters = locate_adapters(session, name_of(session, parts, located))
        check_flags_are_used(session, flags, _used(session, parts, located, adapters))
        frontend: Frontend = make(parts.frontend, session.settings_for(parts.frontend.spec))
        opened = open_model(session, parts, located)
        try:
            engine = _engine(session, parts, opened, adapters)
        except BaseException:
            opened.checkpoint.close()
            raise
    try:
        return _serve(frontend, parts.frontend, engine, values.core["drain-seconds"])
    finally:
        opened.checkpoint.close()


def _used(session: Session, parts: Parts, located: Located, adapters: list[LocatedAdapter]) -> list[Registration]:
    """All parts whose options mean something in this run. Which chat format is used is known only with the model."""
    chosen = (parts.frontend, parts.backend, parts.sampler, located.loader, parts.chat_format)
    used = [*(part for part in chosen if part is not None), *(adapter.loader for adapter in adapters)]
    return used if parts.chat_format is not None else [*used, *session.registry.all("chat-format")]


def _serve(frontend: Frontend, part: Registration, engine: Engine, drain_seconds: float) -> int:
    stop = Stop()
    with stop_on_signals(stop):
        try:
            with attributed(part, "serve"):
                status: Any = frontend.serve(engine, stop)
            if isinstance(status, bool) or not isinstance(status, int):
                msg = f"{part.label}: serve returned {status!r}, not an exit status"
                raise PluginError(msg)
        finally:
            dead = engine.dead
            engine.close(0.0 if dead is not None else drain_seconds)
    return int(status if dead is None else ExitCode.ENGINE_DIED)


# ------------------------------------------------------------------------------------------------ the engine


def _engine(session: Session, parts: Parts, opened: OpenedModel, adapters: list[LocatedAdapter]) -> Engine:
    core = session.values.core
    checkpoint = opened.checkpoint
    backend, observers = _maker(session, parts.backend), _observers(session)
    started = time.monotonic()
    progress = LoadingProgress(f"{opened.origin} ({checkpoint.format})")
    try:
        with end_on_signals(progress.end):
            progress.begin()
            engine = Engine.start(
                checkpoint=checkpoint,
                backend=lambda: _AttributedBackend(parts.backend, backend()),
                sampler=_maker(session, parts.sampler),
                chat_format=lambda vocabulary: _chat_format(session, parts, checkpoint, vocabulary),
                grammars=_grammars(session),
                observers=observers,
                config=EngineConfig(
                    model_id=opened.name,
                    limits=Limits(context=core["context"], max_batch=core["max-batch"], dtype=core["dtype"]),
                    max_queue=core["max-queue"],
                    memory=core["memory"],
                    adapters=AdapterLimits(core["max-resident-adapters"], core["max-resident-adapter-bytes"]),
                    format=checkpoint.format,
                ),
                progress=progress,
                open_adapter=lambda path: open_adapter(session, path),
            )
    finally:
        progress.end()
    try:
        load_adapters(engine, adapters)
    except BaseException:
        engine.close(0.0)
        raise
    info = engine.model_info
    seconds = time.monotonic() - started
    what = f"{checkpoint.format}, context {info.context}"
    log.info("model '%s' (%s) ready on %s in %.1f s", opened.name, what, info.device, seconds)
    return engine


@frozen
class _AttributedBackend:
    """A backend whose failures to load name it: the user asked for a model and must see which part could not."""

    part: Registration
    backend: Backend

    def load(self, checkpoint: Checkpoint, limits: Limits, progress: Callable[[int, int], None]) -> Model:
        try:
            return self.backend.load(checkpoint, limits, progress)
        except LatticeError:
            raise
        except (Exception, SystemExit) as error:
            msg = f"{self.part.label}: the model could not be loaded: {cause_of(error)}"
            raise ModelError(msg) from error


def _maker(session: Session, part: Registration) -> Callable[[], Any]:
    """A factory that may cross threads; what it makes is made on the thread that calls it."""
    settings = session.settings_for(part.spec)
    return lambda: make(part, settings)


def _chat_format(session: Session, parts: Parts, checkpoint: Checkpoint, vocabulary: Vocabulary) -> ChatFormat:
    part = parts.chat_format or select_chat_format(session.registry, checkpoint.chat_template, vocabulary)
    made: ChatFormat = make(part, checkpoint.chat_template, vocabulary, session.settings_for(part.spec))
    return made


def _grammars(session: Session) -> dict[str, Callable[[], Grammar]]:
    registry = session.registry
    return {
        registry.public_name(part): _refusal(part) if unavailable(part.spec) else _maker(session, part)
        for part in registry.all("grammar")
    }


def _refusal(part: Registration) -> Callable[[], Grammar]:
    """Stands for a grammar whose requirements are missing: the request that names it learns why it is refused."""

    def refuse() -> Grammar:
        msg = f"the grammar {part.name!r} is {unavailable(part.spec)}"
        raise UnsupportedFeatureError(msg)

    return refuse


def _observers(session: Session) -> dict[str, Observer]:
    observers: dict[str, Observer] = {}
    for part in session.registry.all("telemetry"):
        if unavailable(part.spec):
            log.warning("%s is %s", part.label, unavailable(part.spec))
            continue
        observers[session.registry.public_name(part)] = make(part, session.settings_for(part.spec))
    return observers
