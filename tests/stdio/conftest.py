from __future__ import annotations

import logging
from contextlib import ExitStack

import pytest

from lattice_conformance.harness import scripted_engine
from tests.stdio.running import Running


@pytest.fixture
def start():
    """``start(json=True, serve=True)`` runs the frontend on the scripted engine; ``config`` are the engine's."""
    with ExitStack() as stack:

        def begin(gate=None, config=None, engine=None, **core):
            engine = engine or stack.enter_context(scripted_engine(gate, **(config or {})))
            running = Running(engine, **core)
            stack.callback(running.close)
            return running

        yield begin


@pytest.fixture
def serving(start):
    """The loop of ``--json --serve``, ready."""

    def begin(gate=None, config=None, **core):
        running = start(gate, config, json=True, serve=True, **core)
        assert running.lines.event() == {"ev": "ready"}
        return running

    return begin


@pytest.fixture
def logged():
    """The lines that the frontend and the engine log, whatever logging is set up beside."""
    lines = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    logger = logging.getLogger("lattice")
    level = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    yield lines
    logger.removeHandler(handler)
    logger.setLevel(level)
