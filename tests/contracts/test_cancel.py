"""A request that is cancelled: while queued, in prefill, between tokens, without a reader."""

from lattice_conformance.gate import Gate
from lattice_conformance.harness import scripted_engine
from lattice_conformance.scripted_backend import ScriptedBackend
from lattice_core.types import (
    Cancelled,
    Limits,
)
from tests.contracts.asking import answer, ask, text_of, wait_until


def test_a_request_cancelled_while_queued_never_reaches_the_model(lookahead):
    gate = Gate()
    backend = ScriptedBackend(gate=gate, lookahead=lookahead)
    with scripted_engine(backend=backend, limits=Limits(max_batch=1)) as engine:
        first = engine.submit(ask("[[repeat:5]]"))
        assert gate.wait_blocked()
        second = engine.submit(ask("never seen"))
        second.cancel()
        third = engine.submit(ask("[[say:third]]"))
        gate.open()
        assert [type(event) for event in second] == [Cancelled]
        assert text_of(list(third)) == "third"
        assert text_of(list(first)) == "xxxxx"
        assert not backend.model.log.saw("never seen")


def test_cancel_between_prefill_chunks_stops_before_the_prompt_ends(lookahead):
    backend = ScriptedBackend(lookahead=lookahead)
    with scripted_engine(backend=backend, prefill_chunk=16) as engine:
        generation = engine.submit(ask("[[prefill-delay:20]]" + "long " * 400))
        wait_until(lambda: backend.model.log.forward_calls >= 2)
        generation.cancel()
        events = list(generation)
        assert isinstance(events[-1], Cancelled)
        assert text_of(events) == ""
        assert backend.model.log.forward_calls < 30
        assert answer(engine) == "ok"


def test_a_cancelled_generation_stops_within_one_step_and_the_next_runs(lookahead):
    gate = Gate()
    backend = ScriptedBackend(gate=gate, lookahead=lookahead)
    with scripted_engine(backend=backend) as engine:
        generation = engine.submit(ask("[[repeat:500]]"))
        gate.permit(5)
        assert gate.wait_blocked()
        calls = backend.model.log.forward_calls
        generation.cancel()
        gate.permit(1)
        events = list(generation)
        assert isinstance(events[-1], Cancelled)
        assert backend.model.log.forward_calls <= calls + 1
        gate.open()
        assert answer(engine) == "ok"
        wait_until(lambda: engine.stats().live_states == 0)


def test_cancel_needs_no_token_to_flow():
    with scripted_engine() as engine:
        generation = engine.submit(ask("[[repeat:3000]]"))
        # Nobody reads: the events stay where they are, and cancel is seen all the same.
        generation.cancel()
        wait_until(lambda: engine.stats().running == 0)
        assert isinstance(list(generation)[-1], Cancelled)
