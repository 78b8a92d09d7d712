"""Rows beside one another: independence, slow readers, prefill beside decode, steps launched ahead, the end of the engine."""

import threading

import pytest

from lattice_conformance.gate import Gate
from lattice_conformance.harness import scripted_engine
from lattice_conformance.scripted_backend import ScriptedBackend
from lattice_core.errors import (
    ShuttingDownError,
)
from lattice_core.types import (
    Cancelled,
    Done,
    Limits,
    SamplingParams,
    Started,
)
from tests.contracts.asking import answer, ask, text_of, wait_until


def test_a_rows_output_does_not_depend_on_its_neighbours(lookahead):
    texts = [f"[[say:reply number {number} of many]]" for number in range(12)]
    with scripted_engine(backend=ScriptedBackend(lookahead=lookahead), limits=Limits(max_batch=5)) as engine:
        alone = [answer(engine, text) for text in texts]
        together = [engine.submit(ask(text)) for text in texts]
        assert [text_of(list(generation)) for generation in together] == alone


def test_the_numbers_a_row_draws_depend_on_its_seed_and_position_alone(lookahead):
    drawn = {}

    class Recording:
        def new_state(self, params, prompt, vocab_size):
            return drawn.setdefault((params.seed, len(prompt)), [])

        def sample(self, logits, state, u):
            state.append(u)
            return int(logits.argmax())

    with scripted_engine(backend=ScriptedBackend(lookahead=lookahead), sampler=Recording) as engine:
        same = [SamplingParams(seed=7), SamplingParams(seed=7), SamplingParams(seed=8)]
        prompts = ["[[repeat:5]]", "[[repeat:5]] ", "[[repeat:5]]"]
        rows = [engine.submit(ask(text, sampling=params)) for text, params in zip(prompts, same, strict=True)]
        for row in rows:
            list(row)
        first, second, other = drawn.values()
        assert first == second != other
        assert len(set(first)) == 6
        assert all(0 <= u < 1 for u in first)


def test_a_slow_reader_pauses_its_row_only_and_loses_nothing():
    with scripted_engine(limits=Limits(context=4096)) as engine:
        slow = engine.submit(ask("[[repeat:3000]]"))
        wait_until(lambda: slow.undelivered >= 1024)
        assert answer(engine) == "ok"
        assert slow.undelivered < 1100
        events = list(slow)
        assert text_of(events) == "x" * 3000
        assert isinstance(events[-1], Done)


def test_deltas_of_a_slow_reader_coalesce():
    with scripted_engine() as engine:
        slow = engine.submit(ask("[[repeat:900]]"))
        wait_until(lambda: slow.terminal is not None)
        events = list(slow)
        assert len(events) < 100
        assert text_of(events) == "x" * 900


def test_a_reader_that_never_comes_back_is_cancelled_after_the_limit():
    with scripted_engine(slow_reader_seconds=0.1) as engine:
        slow = engine.submit(ask("[[repeat:3000]]"))
        wait_until(lambda: isinstance(slow.terminal, Cancelled))
        wait_until(lambda: engine.stats().live_states == 0)
        assert answer(engine) == "ok"


def test_prefill_goes_beside_decode_so_that_neither_starves(lookahead):
    backend = ScriptedBackend(lookahead=lookahead)
    with scripted_engine(backend=backend, prefill_chunk=32) as engine:
        decoding = engine.submit(ask("[[repeat:400]]"))
        events = iter(decoding)
        assert isinstance(next(events), Started)
        next(events)
        prompt = engine.submit(ask("long " * 100 + "[[say:done]]"))
        assert text_of(list(prompt)) == "done"
        list(events)
        mixed = [rows for rows in backend.model.log.forwards if {row.decode for row in rows} == {True, False}]
        assert len(mixed) >= 10
        assert max(sum(len(row.tokens) for row in rows if not row.decode) for rows in mixed) <= 32


def test_rows_join_and_leave_between_steps(lookahead):
    backend = ScriptedBackend(lookahead=lookahead)
    with scripted_engine(backend=backend, limits=Limits(max_batch=8)) as engine:
        rows = [engine.submit(ask(f"[[repeat:{length}]]")) for length in (300, 5, 40, 120)]
        assert [len(text_of(list(row))) for row in rows] == [300, 5, 40, 120]
        widths = {sum(row.decode for row in rows) for rows in backend.model.log.forwards}
        assert {1, 2} <= widths
        assert engine.stats().live_states <= 1


def test_one_row_at_a_time_serves_in_order():
    backend = ScriptedBackend()
    with scripted_engine(backend=backend, limits=Limits(max_batch=1)) as engine:
        rows = [engine.submit(ask(f"[[say:{number}]]")) for number in range(5)]
        assert [text_of(list(row)) for row in rows] == list("01234")
        assert all(len(step) == 1 for step in backend.model.log.forwards)


def test_the_next_step_is_launched_on_a_token_that_is_not_read_yet():
    order = []
    backend = ScriptedBackend(lookahead=True)
    with scripted_engine(backend=backend) as engine:
        model = backend.model
        forward, read = model.forward, model.read
        model.forward = lambda plan: order.append("forward") or forward(plan)
        model.read = lambda tokens: order.append("read") or read(tokens)
        assert answer(engine, "[[say:abc]]") == "abc"
    assert order == ["forward", "forward", "read", "forward", "read", "forward", "read", "forward", "read", "read"]


def test_without_lookahead_no_step_is_wasted_after_the_last_token():
    backend = ScriptedBackend(lookahead=False)
    with scripted_engine(backend=backend) as engine:
        assert answer(engine, "[[say:abc]]") == "abc"
        assert backend.model.log.forward_calls == 4


def test_closing_lets_running_requests_finish_and_refuses_new_ones():
    gate = Gate()
    backend = ScriptedBackend(gate=gate)
    with scripted_engine(backend=backend) as engine:
        running = engine.submit(ask("[[repeat:5]]"))
        assert gate.wait_blocked()
        closer = threading.Thread(target=engine.close, args=(10.0,))
        closer.start()
        wait_until(lambda: engine.health().status == "draining")
        with pytest.raises(ShuttingDownError):
            engine.submit(ask("x"))
        gate.open()
        closer.join(10)
        assert not closer.is_alive()
        assert (text_of(list(running)), type(running.terminal)) == ("xxxxx", Done)


def test_closing_cancels_what_does_not_finish_in_time():
    backend = ScriptedBackend()
    with scripted_engine(backend=backend) as engine:
        running = engine.submit(ask("[[repeat:3000]][[delay:20]]"))
        next(iter(running))
        engine.close(0.05)
        assert isinstance(list(running)[-1], Cancelled)


def test_fifty_clients_that_leave_at_random_moments_leave_nothing_behind(lookahead):
    backend = ScriptedBackend(lookahead=lookahead)
    with scripted_engine(backend=backend, limits=Limits(max_batch=8), max_queue=64, prefill_chunk=16) as engine:
        rows = [engine.submit(ask(f"[[repeat:{30 + 7 * n}]]" + "p" * (n % 5) * 20)) for n in range(50)]
        for number, row in enumerate(rows):
            for _ in range(number % 9):
                row.next(timeout=0.001)
            row.cancel()
        assert all(isinstance(list(row)[-1], Cancelled | Done) for row in rows)
        wait_until(lambda: engine.stats().live_states == 0)
        stats = engine.stats()
        assert (stats.running, stats.queued, stats.reserved_bytes) == (0, 0, 0)
        assert answer(engine) == "ok"
