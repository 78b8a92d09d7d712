"""Grammars fail closed, and what cannot be honoured is refused before any work."""

import threading

import pytest

from lattice_conformance.fakes import HostGreedySampler, MaskIgnoringSampler
from lattice_conformance.harness import scripted_engine
from lattice_conformance.scripted_backend import ScriptedBackend
from lattice_core.errors import (
    BlockedConstraintError,
    LatticeError,
    RequestError,
    SamplerError,
    UnknownModelError,
    UnsupportedFeatureError,
)
from lattice_core.types import (
    GenerationRequest,
    GrammarRequest,
    Message,
    SamplingParams,
)
from tests.contracts.asking import answer, ask, text_of


def test_a_grammar_that_blocks_every_token_fails_the_request(lookahead):
    with scripted_engine(backend=ScriptedBackend(lookahead=lookahead)) as engine:
        blocked = engine.submit(ask("[[say:hello]]", grammar=GrammarRequest("scripted-blocks")))
        neighbour = engine.submit(ask("[[say:hello]]"))
        events = list(blocked)
        assert isinstance(events[-1].error, BlockedConstraintError)
        assert text_of(events) == ""
        assert text_of(list(neighbour)) == "hello"


@pytest.mark.parametrize("sampler", [None, HostGreedySampler])
def test_a_grammar_holds_and_its_neighbours_are_free(lookahead, sampler):
    kinds = {} if sampler is None else {"sampler": sampler}
    with scripted_engine(backend=ScriptedBackend(lookahead=lookahead), **kinds) as engine:
        held = engine.submit(ask("[[say:abcdef]]", grammar=GrammarRequest("scripted-alphabet", "bdz"), max_tokens=6))
        free = engine.submit(ask("[[say:abcdef]]", max_tokens=6))
        held_text, free_text = text_of(list(held)), text_of(list(free))
        assert (set(held_text) <= set("bdz"), len(held_text), free_text) == (True, 6, "abcdef")


def test_a_sampler_that_ignores_the_mask_fails_its_row():
    with scripted_engine(sampler=MaskIgnoringSampler) as engine:
        events = list(engine.submit(ask("[[say:a]]", grammar=GrammarRequest("scripted-alphabet", "a"))))
        assert isinstance(events[-1].error, SamplerError)
        assert text_of(events) == ""


@pytest.mark.parametrize(
    ("fields", "error", "param"),
    [
        ({"grammar": GrammarRequest("no-such")}, UnsupportedFeatureError, "response_format"),
        ({"model": "other"}, UnknownModelError, "model"),
        ({"max_tokens": 0}, RequestError, "max_tokens"),
        ({"sampling": SamplingParams(temperature=float("nan"))}, RequestError, "temperature"),
        ({"sampling": SamplingParams(temperature=-1)}, RequestError, "temperature"),
        ({"sampling": SamplingParams(top_p=0)}, RequestError, "top_p"),
        ({"sampling": SamplingParams(top_p=1.5)}, RequestError, "top_p"),
        ({"sampling": SamplingParams(top_k=-1)}, RequestError, "top_k"),
        ({"sampling": SamplingParams(repetition_penalty=0)}, RequestError, "repetition_penalty"),
        ({"prompt": ""}, RequestError, "prompt"),
        ({"prompt": (1, 100_000)}, RequestError, "prompt"),
        ({"prompt": None, "messages": ()}, RequestError, "messages"),
        ({"messages": (Message("user", "x"),)}, RequestError, "messages"),
    ],
)
def test_what_cannot_be_honoured_is_an_error_before_work_begins(fields, error, param):
    backend = ScriptedBackend()
    with scripted_engine(backend=backend) as engine:
        with pytest.raises(error) as caught:
            engine.submit(GenerationRequest(**({"prompt": "x"} | fields)))
        assert caught.value.param == param
        assert backend.model.log.forward_calls == 0


def test_a_fault_in_rendering_is_an_error_of_that_request_only():
    class Broken:
        stop_ids = frozenset()

        def render(self, messages, options):
            msg = "template fault"
            raise ZeroDivisionError(msg)

    with scripted_engine() as engine:
        engine._chat_format = Broken()
        with pytest.raises(LatticeError) as caught:
            engine.submit(GenerationRequest(messages=(Message("user", "x"),)))
        assert (caught.value.code, "template fault" in caught.value.detail) == ("internal_error", True)
        assert answer(engine) == "ok"


def test_rendering_has_a_deadline():
    release = threading.Event()

    class Endless:
        stop_ids = frozenset()

        def render(self, messages, options):
            release.wait(30)

    with scripted_engine(prepare_seconds=0.05) as engine:
        engine._chat_format = Endless()
        with pytest.raises(RequestError, match=r"longer than 0\.05 s"):
            engine.submit(GenerationRequest(messages=(Message("user", "x"),)))
        release.set()
