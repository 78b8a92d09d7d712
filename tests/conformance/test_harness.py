"""The real engine over the scripted backend: what other tests build on."""

import pytest

from lattice_conformance.fakes import HostGreedySampler, MaskIgnoringSampler, RaisingSampler
from lattice_conformance.gate import Gate
from lattice_conformance.harness import scripted_engine
from lattice_conformance.scripted_backend import ScriptedBackend
from lattice_core.errors import BlockedConstraintError, ModelError, SamplerError, StepError
from lattice_core.types import Cancelled, Delta, Done, Failed, GenerationRequest, GrammarRequest, Message


def ask(text, **fields):
    return GenerationRequest(messages=(Message("user", text),), **fields)


def outcome(generation):
    events = list(generation)
    return "".join(event.text for event in events if isinstance(event, Delta)), events[-1]


@pytest.mark.parametrize("lookahead", [False, True])
@pytest.mark.parametrize("text", ["Hello from the scripted backend.", "naïve ☃ text", "x"])
def test_a_reply_arrives_as_it_was_scripted(text, lookahead):
    with scripted_engine(backend=ScriptedBackend(lookahead=lookahead)) as engine:
        said, end = outcome(engine.submit(ask(f"[[say:{text}]]")))
    assert said == text
    assert isinstance(end, Done)
    assert end.usage.completion_tokens == len(text.encode())


def test_a_sampler_without_the_batch_form_serves_too():
    with scripted_engine(sampler=HostGreedySampler) as engine:
        assert outcome(engine.submit(ask("[[say:plain]]")))[0] == "plain"


def test_a_gate_decides_when_tokens_flow():
    gate = Gate()
    with scripted_engine(gate) as engine:
        generation = engine.submit(ask("[[say:abcdef]]"))
        events = iter(generation)
        assert gate.wait_blocked()
        gate.permit(2)
        assert gate.wait_blocked()
        texts = []
        while len(texts) < 3:
            event = next(events)
            if isinstance(event, Delta):
                texts.append(event.text)
        assert texts == ["a", "b", "c"]
        generation.cancel()
        gate.open()
        assert isinstance(list(events)[-1], Cancelled)


def test_a_scripted_failure_fails_its_request_and_the_next_one_runs():
    with scripted_engine() as engine:
        assert isinstance(outcome(engine.submit(ask("[[fail:2]]")))[1].error, StepError)
        assert outcome(engine.submit(ask("[[say:fine]]")))[0] == "fine"


def test_a_hang_ends_when_it_is_released():
    backend = ScriptedBackend()
    with scripted_engine(backend=backend) as engine:
        generation = engine.submit(ask("[[hang]][[say:back]]"))
        backend.release()
        assert outcome(generation)[0] == "back"


def test_a_grammar_shapes_the_reply():
    with scripted_engine() as engine:
        request = ask("[[say:caged]]", grammar=GrammarRequest("scripted-alphabet", "acde"), max_tokens=5)
        assert outcome(engine.submit(request))[0] == "caaed"


def test_a_grammar_that_blocks_everything_fails_the_request():
    with scripted_engine() as engine:
        end = outcome(engine.submit(ask("hi", grammar=GrammarRequest("scripted-blocks"))))[1]
    assert isinstance(end, Failed)
    assert isinstance(end.error, BlockedConstraintError)


def test_a_sampler_that_raises_fails_its_row_after_its_good_tokens():
    with scripted_engine(sampler=lambda: RaisingSampler(at=3)) as engine:
        text, end = outcome(engine.submit(ask("[[say:abcdef]]")))
    assert text == "abc"
    assert isinstance(end.error, SamplerError)


def test_a_sampler_that_ignores_masks_is_caught():
    with scripted_engine(sampler=MaskIgnoringSampler) as engine:
        end = outcome(engine.submit(ask("hi", grammar=GrammarRequest("scripted-alphabet", "abc"))))[1]
        assert isinstance(end.error, SamplerError)
        assert outcome(engine.submit(ask("[[say:free]]")))[0] == "free"


def test_a_backend_that_does_not_load_is_an_error_before_the_engine_is_there():
    with pytest.raises(ModelError, match="told to fail"), scripted_engine(backend=ScriptedBackend(fail="load")):
        pass


def test_leaving_the_harness_frees_a_blocked_engine():
    gate = Gate()
    with scripted_engine(gate) as engine:
        generation = engine.submit(ask("[[repeat:50]]"))
        assert gate.wait_blocked()
    assert isinstance(list(generation)[-1], Done | Cancelled)


def test_the_gate_of_a_given_backend_is_not_given_twice():
    with (
        pytest.raises(ValueError, match="give the gate to the ScriptedBackend"),
        scripted_engine(Gate(), backend=ScriptedBackend()),
    ):
        pass
