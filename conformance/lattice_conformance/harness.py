"""Owns the way a test runs the real engine over the scripted backend, in process. Knows no frontend."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lattice_conformance.chatml import BareChatML
from lattice_conformance.fakes import AlphabetGrammar, BlockingGrammar, GreedySampler
from lattice_conformance.scripted_adapter import ScriptedLoader
from lattice_conformance.scripted_backend import ScriptedBackend, ScriptedCheckpoint
from lattice_core.engine import Engine, EngineConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from lattice_conformance.gate import Gate
    from lattice_core.protocols import AdapterCheckpoint, Grammar, Sampler

MODEL_ID = "scripted"


@contextmanager
def scripted_engine(
    gate: Gate | None = None,
    *,
    backend: ScriptedBackend | None = None,
    sampler: Callable[[], Sampler] = GreedySampler,
    grammars: Mapping[str, Callable[[], Grammar]] | None = None,
    open_adapter: Callable[[Path], AdapterCheckpoint] | None = None,
    close_timeout: float = 5.0,
    **config: Any,
) -> Iterator[Engine]:
    """The real engine over the scripted backend: greedy, bare ChatML, grammars ``scripted-blocks`` and ``scripted-alphabet``.

    ``gate`` is for the backend that is made here; a test that looks into the model makes its own ``ScriptedBackend`` and
    reads ``backend.model``. Adapters are opened by ``ScriptedLoader`` unless ``open_adapter`` says otherwise. ``config`` are
    fields of ``EngineConfig``. On leaving, the gate opens, hangs end and the engine closes, so that a failed test leaves no
    thread behind. Raises ``ModelError`` when the backend does not load.
    """
    if backend is None:
        backend = ScriptedBackend(gate=gate)
    elif gate is not None:
        msg = "give the gate to the ScriptedBackend, not to the harness"
        raise ValueError(msg)
    engine = Engine.start(
        checkpoint=ScriptedCheckpoint(backend.context),
        backend=lambda: backend,
        sampler=sampler,
        chat_format=BareChatML,
        grammars={"scripted-blocks": BlockingGrammar, "scripted-alphabet": AlphabetGrammar} if grammars is None else grammars,
        config=EngineConfig(**{"model_id": MODEL_ID} | config),
        open_adapter=open_adapter or ScriptedLoader().open_adapter,
    )
    try:
        yield engine
    finally:
        backend.release()
        engine.close(close_timeout)
