import pytest

from lattice_core.errors import GenerationError
from lattice_core.types import Want
from lattice_eval.scoring import score
from lattice_eval.windows import windows_of
from tests.eval.conftest import naive_nll
from tests.eval.site.counting_plugin import CountingModel

TOKENS = [(7 * n * n + n) % 256 for n in range(150)]


def values_of(model, tokens, windows):
    return [float(value) for part in score(model, tokens, windows) for value in part]


@pytest.mark.parametrize(("window", "stride"), [(64, 32), (64, 1), (64, 64), (10, 3), (2, 1)])
def test_each_token_is_scored_by_what_its_window_holds_before_it(window, stride):
    windows = list(windows_of(len(TOKENS), window, stride))
    expected = [
        naive_nll(TOKENS[item.start : place], TOKENS[place])
        for item in windows
        for place in range(item.first_scored, item.stop)
    ]
    assert values_of(CountingModel(), TOKENS, windows) == pytest.approx(expected, rel=1e-12)


def test_context_is_fed_without_logits_and_the_last_token_not_at_all():
    model = CountingModel()
    values_of(model, TOKENS, list(windows_of(96, 64, 32)))
    assert [(len(tokens), want) for tokens, want in model.log] == [(63, Want.ALL), (31, Want.NONE), (32, Want.ALL)]


def test_steps_are_bounded_in_tokens_and_the_logits_of_a_step_in_bytes():
    model = CountingModel(context=4096, vocab=248_320)
    values_of(model, [1] * 2048, list(windows_of(2048, 1536, 512)))
    wanted = [len(tokens) for tokens, want in model.log if want is Want.ALL]
    assert max(wanted) * 248_320 * 4 <= 128 * 1024 * 1024
    assert max(wanted) >= 128
    assert [len(tokens) for tokens, want in model.log if want is Want.NONE] == [512, 511]


def test_no_state_is_left_when_the_caller_stops_in_the_middle():
    model = CountingModel()
    parts = score(model, TOKENS, windows_of(len(TOKENS), 64, 32))
    next(parts)
    assert model.states
    parts.close()
    assert not model.states


def test_logits_that_are_not_finite_are_an_error_that_names_the_token():
    with pytest.raises(GenerationError, match="gives token 63 of the text no finite probability"):
        values_of(CountingModel(at="nan"), TOKENS, windows_of(len(TOKENS), 64, 32))
