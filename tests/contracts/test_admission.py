"""The cost of a request is bounded when it is admitted: context, queue, memory."""

import pytest

from lattice_conformance.gate import Gate
from lattice_conformance.harness import scripted_engine
from lattice_conformance.scripted_backend import ScriptedBackend
from lattice_core.errors import (
    ContextLengthExceededError,
    InsufficientMemoryError,
    ServerBusyError,
)
from lattice_core.types import (
    Done,
    FinishReason,
    Limits,
)
from tests.contracts.asking import answer, ask, text_of, wait_until


def test_a_prompt_that_fills_the_context_is_refused_with_both_numbers():
    with scripted_engine(limits=Limits(context=64)) as engine:
        with pytest.raises(ContextLengthExceededError, match=r"64 tokens.*64 tokens"):
            engine.submit(ask("x" * 64))
        events = list(engine.submit(ask("[[repeat:99]]" + "y" * 47, max_tokens=50)))
        assert (text_of(events), events[-1].finish_reason) == ("xxxx", FinishReason.LENGTH)


def test_a_huge_max_tokens_costs_nothing_but_the_context():
    with scripted_engine() as engine:
        events = list(engine.submit(ask("[[repeat:3]]", max_tokens=2**40)))
        assert (text_of(events), events[-1].finish_reason) == ("xxx", FinishReason.STOP)


def test_the_queue_is_bounded_and_recovers(lookahead):
    gate = Gate()
    backend = ScriptedBackend(gate=gate, lookahead=lookahead)
    with scripted_engine(backend=backend, limits=Limits(max_batch=1), max_queue=2) as engine:
        running = engine.submit(ask("[[repeat:5]]"))
        assert gate.wait_blocked()
        queued = [engine.submit(ask("[[say:q]]")) for _ in range(2)]
        with pytest.raises(ServerBusyError) as caught:
            engine.submit(ask("x"))
        assert caught.value.retry_after >= 1
        gate.open()
        assert [text_of(list(row)) for row in [running, *queued]] == ["xxxxx", "q", "q"]
        assert answer(engine) == "ok"


def test_an_idle_engine_takes_a_whole_batch_beside_its_queue():
    gate = Gate()
    backend = ScriptedBackend(gate=gate)
    with scripted_engine(backend=backend, limits=Limits(max_batch=3), max_queue=0) as engine:
        rows = [engine.submit(ask("[[say:ok]]")) for _ in range(3)]
        with pytest.raises(ServerBusyError, match="--max-batch 3 may run and --max-queue 0 may wait"):
            engine.submit(ask("x"))
        gate.open()
        assert [text_of(list(row)) for row in rows] == ["ok"] * 3


def test_memory_is_reserved_before_a_row_runs_and_given_back(lookahead):
    gate = Gate()
    backend = ScriptedBackend(gate=gate, lookahead=lookahead)
    with scripted_engine(backend=backend, memory=12_000) as engine:
        # 100 bytes for each token of prompt and answer: the two rows do not fit together.
        first = engine.submit(ask("[[repeat:50]]", max_tokens=50))
        assert gate.wait_blocked()
        second = engine.submit(ask("[[say:second]]", max_tokens=60))
        assert (engine.stats().running, engine.stats().queued) == (1, 1)
        gate.open()
        assert text_of(list(second)) == "second"
        assert isinstance(list(first)[-1], Done)
        wait_until(lambda: engine.stats().reserved_bytes == 0)
        with pytest.raises(InsufficientMemoryError, match="memory limit"):
            engine.submit(ask("x", max_tokens=200))
