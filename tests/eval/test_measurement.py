import pytest

from lattice_core.descriptors import Settings
from lattice_core.errors import ModelError, StepError
from lattice_core.types import Limits
from lattice_eval.measurement import Request, measure
from tests.eval.site.counting_plugin import CountingBackend, CountingCheckpoint


class Backend(CountingBackend):
    """Remembers the model that it loaded last."""

    def __init__(self, fail=None):
        super().__init__(Settings(own={"fail": fail}))
        self.model = None

    def load(self, checkpoint, limits, progress):
        self.model = super().load(checkpoint, limits, progress)
        return self.model


def run(backend, report=lambda *_: None, tokens=range(100)):
    return measure(lambda: backend, CountingCheckpoint({}), Request(list(tokens), 32, 16, Limits()), report)


def test_it_reports_loading_and_then_scoring_up_to_the_end():
    seen = []
    figures = run(Backend(), lambda *values: seen.append(values))
    assert seen[:3] == [("loading", 0, 1), ("loading", 1, 1), ("scoring", 0, 99)]
    assert seen[-1] == ("scoring", 99, 99, f"perplexity {figures.perplexity:.4g}")
    done = [values[1] for values in seen[2:]]
    assert done == sorted(set(done))


def test_the_model_is_freed_with_all_states_at_the_end():
    backend = Backend()
    run(backend)
    assert backend.model.closed
    assert backend.model.states == {}


def test_the_model_is_freed_when_a_step_fails():
    backend = Backend("raise")
    with pytest.raises(StepError, match="the beads came off"):
        run(backend)
    assert backend.model.closed


def test_the_model_is_freed_when_the_caller_wants_no_more():
    class EnoughError(Exception):
        pass

    def report(what, done, *_):
        if what == "scoring" and done > 40:
            raise EnoughError

    backend = Backend()
    with pytest.raises(EnoughError):
        run(backend, report)
    assert backend.model.closed
    assert len(backend.model.log) < 5


def test_tokens_that_the_model_does_not_have_are_refused_and_the_model_freed():
    backend = Backend()
    with pytest.raises(ModelError, match="the tokenizer made token 999, but the model's vocabulary is 264"):
        run(backend, tokens=[1, 999, 2])
    assert backend.model.closed
    assert backend.model.log == []
