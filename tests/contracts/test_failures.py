"""What fails, fails alone as far as it can: rows, steps, the engine; always with its cause and exactly one terminal event."""

import threading

import pytest

from lattice_conformance.fakes import HostGreedySampler, RaisingSampler
from lattice_conformance.gate import Gate
from lattice_conformance.harness import scripted_engine
from lattice_conformance.scripted_backend import ScriptedBackend, ScriptedCheckpoint
from lattice_core.engine import Engine, EngineConfig
from lattice_core.errors import (
    EngineDiedError,
    ModelError,
    SamplerError,
    StepError,
)
from lattice_core.types import (
    Cancelled,
    Done,
    Failed,
    GrammarRequest,
    Limits,
)
from tests.contracts.asking import answer, ask, text_of, wait_until

TERMINAL = (Done, Cancelled, Failed)


def test_a_failing_generation_is_failed_with_its_cause_and_the_next_is_served(lookahead):
    with scripted_engine(backend=ScriptedBackend(lookahead=lookahead)) as engine:
        events = list(engine.submit(ask("[[say:abcdef]][[fail:3]]")))
        assert isinstance(events[-1], Failed)
        assert isinstance(events[-1].error, StepError)
        assert "reply token 3" in events[-1].error.detail
        assert text_of(events) == "abc"
        assert sum(isinstance(event, TERMINAL) for event in events) == 1
        assert answer(engine) == "ok"


def test_a_failed_step_fails_the_active_rows_and_frees_everything(lookahead):
    gate = Gate()
    backend = ScriptedBackend(gate=gate, lookahead=lookahead)
    with scripted_engine(backend=backend, limits=Limits(max_batch=4)) as engine:
        neighbour = engine.submit(ask("[[repeat:50]]"))
        assert gate.wait_blocked()
        poisoned = engine.submit(ask("[[fail-prefill]]"))
        gate.open()
        assert isinstance(list(poisoned)[-1], Failed)
        assert isinstance(list(neighbour)[-1], Failed | Done)
        wait_until(lambda: engine.stats().live_states == 0)
        assert engine.stats().reserved_bytes == 0
        assert answer(engine) == "ok"


def test_a_row_that_ended_before_its_neighbour_broke_the_step_has_ended_well():
    """The step that was launched ahead fails; what the step before made still counts."""
    with scripted_engine(backend=ScriptedBackend(lookahead=True)) as engine:
        gate = threading.Barrier(2)

        def submit(text, out):
            gate.wait()
            out.append(list(engine.submit(ask(text))))

        short, failing = [], []
        threads = [
            threading.Thread(target=submit, args=("[[say:ab]]", short)),
            threading.Thread(target=submit, args=("[[repeat:9]][[fail:9]]", failing)),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert isinstance(failing[0][-1], Failed)
        assert text_of(failing[0]) == "x" * 9
        assert isinstance(short[0][-1], Done)
        assert text_of(short[0]) == "ab"


def test_a_sampler_that_raises_fails_its_row_only():
    class SometimesRaises(RaisingSampler):
        def new_state(self, params, prompt, vocab_size):
            return [0] if bytes(prompt).startswith(b"bad") else [-1000]

    with scripted_engine(sampler=SometimesRaises) as engine:
        bad, good = engine.submit(ask("bad [[repeat:9]]")), engine.submit(ask("[[repeat:9]]"))
        bad_events, good_events = list(bad), list(good)
        assert isinstance(bad_events[-1].error, SamplerError)
        assert text_of(bad_events) == "xx"
        assert (type(good_events[-1]), text_of(good_events)) == (Done, "x" * 9)
        assert engine.health().ok


def test_a_batch_sampler_that_raises_for_one_row_fails_that_row_only(lookahead):
    class BatchRaises:
        def new_state(self, params, prompt, vocab_size):
            return bytes(prompt).startswith(b"bad")

        def sample(self, logits, state, u):
            raise AssertionError

        def sample_batch(self, logits, states, u):
            if any(states):
                msg = "one of the rows is bad"
                raise ValueError(msg)
            return logits.argmax(axis=-1)

    backend = ScriptedBackend(lookahead=lookahead)
    with scripted_engine(backend=backend, sampler=BatchRaises) as engine:
        rows = [engine.submit(ask(text)) for text in ("[[repeat:9]]", "bad", "[[repeat:7]]")]
        events = [list(row) for row in rows]
        assert [type(row[-1]) for row in events] == [Done, Failed, Done]
        assert [text_of(row) for row in events] == ["x" * 9, "", "x" * 7]


def test_three_failed_steps_in_a_row_end_the_engine():
    with scripted_engine(backend=ScriptedBackend(fail="steps")) as engine:
        deaths = []
        engine.on_death(deaths.append)
        errors = [list(engine.submit(ask("x")))[-1] for _ in range(2)]
        assert all(isinstance(event.error, StepError) for event in errors)
        assert engine.health().ok
        assert isinstance(list(engine.submit(ask("x")))[-1], Failed)
        wait_until(lambda: engine.dead is not None)
        assert (engine.health().ok, engine.health().status) == (False, "dead")
        with pytest.raises(EngineDiedError):
            engine.submit(ask("x"))
        wait_until(lambda: deaths == [engine.dead])
        late = []
        engine.on_death(late.append)
        assert late == deaths


def test_when_the_engine_dies_every_pending_request_fails():
    with scripted_engine(backend=ScriptedBackend(fail="steps"), limits=Limits(max_batch=1)) as engine:
        generations = []
        for _ in range(9):
            try:
                generations.append(engine.submit(ask("more")))
            except EngineDiedError:
                break
        assert {type(list(generation)[-1]) for generation in generations} == {Failed}


def test_a_good_step_between_failures_keeps_the_engine_alive():
    with scripted_engine() as engine:
        for _ in range(4):
            assert isinstance(list(engine.submit(ask("[[fail-prefill]]")))[-1], Failed)
            assert answer(engine) == "ok"
        assert engine.health().ok


def test_a_step_that_does_not_end_makes_health_say_so():
    backend = ScriptedBackend()
    with scripted_engine(backend=backend, stall_seconds=0.05) as engine:
        generation = engine.submit(ask("[[hang]]"))
        wait_until(lambda: engine.health().status == "stalled")
        assert not engine.health().ok
        backend.release()
        assert isinstance(list(generation)[-1], Done)
        assert engine.health().ok


def test_a_model_that_cannot_be_loaded_is_reported_before_ready():
    with pytest.raises(ModelError, match="told to fail"), scripted_engine(backend=ScriptedBackend(fail="load")):
        pass


def test_whatever_a_backend_raises_at_load_is_one_model_error():
    class Exits:
        def load(self, checkpoint, limits, progress):
            raise SystemExit(3)

    backend = ScriptedBackend()
    backend.load = Exits().load
    with pytest.raises(ModelError, match="SystemExit"), scripted_engine(backend=backend):
        pass


def test_a_token_that_could_not_be_read_leaves_no_gap_in_the_text():
    """The step launched ahead stands on the lost token: what it made must not be shown."""
    backend = ScriptedBackend(lookahead=True)
    with scripted_engine(backend=backend) as engine:
        read, calls = backend.model.read, []

        def lossy(tokens):
            calls.append(tokens)
            if len(calls) == 3:
                raise OSError("the device lost a step")
            return read(tokens)

        backend.model.read = lossy
        events = list(engine.submit(ask("[[say:abcdef]]")))
        assert (text_of(events), type(events[-1])) == ("ab", Failed)
        assert len(calls) == 3
        assert answer(engine) == "ok"


def test_a_grammar_that_raises_fails_its_row_and_is_not_taken_for_the_sampler():
    class Raises:
        accepting = finished = False

        def compile(self, spec, vocabulary):
            return self

        def fill_mask(self, out):
            raise KeyError("state")

    with scripted_engine(grammars={"raises": Raises}) as engine:
        failed = engine.submit(ask("x", grammar=GrammarRequest("raises")))
        neighbour = engine.submit(ask("[[say:fine]]"))
        error = list(failed)[-1].error
        assert (error.code, error.message, "KeyError" in error.detail) == ("generation_failed", "the grammar failed", True)
        assert text_of(list(neighbour)) == "fine"


def test_a_chat_format_that_cannot_be_made_is_known_before_any_weight_is_loaded():
    backend = ScriptedBackend()

    def broken(vocabulary):
        raise ModelError("no such format")

    with pytest.raises(ModelError, match="no such format"):
        Engine.start(
            checkpoint=ScriptedCheckpoint(),
            backend=lambda: backend,
            sampler=HostGreedySampler,
            chat_format=broken,
            config=EngineConfig(model_id="m"),
        )
    assert backend.model is None
