import numpy as np
import pytest

from lattice_core.errors import SamplerError
from lattice_core.types import SamplingParams
from lattice_samplers.default_sampler import DefaultSampler
from lattice_samplers.greedy_sampler import GreedySampler

NAN, INF = np.nan, np.inf


def sample(logits, u=0.0, prompt=(), **params):
    values = np.array(logits, np.float32)
    values.flags.writeable = False
    sampler = DefaultSampler()
    return sampler.sample(values, sampler.new_state(SamplingParams(**params), prompt, len(logits)), u)


def test_the_first_of_equal_best_logits_wins_at_temperature_zero():
    assert sample([1, 3, 3, 2], u=0.99, temperature=0) == 1


def test_not_a_number_is_never_chosen():
    assert sample([NAN, 1, NAN, 2, NAN], temperature=0) == 3
    assert {sample([NAN, 1, NAN, 2, NAN], u=u / 50) for u in range(50)} == {1, 3}


def test_an_infinite_logit_is_taken_and_the_first_of_several_wins():
    assert sample([0, INF, 5, INF], u=0.99) == 1


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("logits", [[NAN] * 4, [-INF] * 4, [-INF, NAN, -INF, NAN]])
def test_a_row_without_any_token_fails_instead_of_choosing_token_zero(logits, temperature):
    with pytest.raises(SamplerError, match="all 4 logits are masked or NaN"):
        sample(logits, temperature=temperature)
    with pytest.raises(SamplerError, match="all 4 logits are masked or NaN"):
        GreedySampler().sample(np.array(logits, np.float32), None, 0.0)


def test_the_draw_takes_the_first_token_whose_cumulative_probability_exceeds_u():
    logits = np.log([0.1, 0.4, 0.2, 0.3])
    drawn = [sample(logits, u) for u in (0.0, 0.399, 0.401, 0.699, 0.701, 0.899, 0.901, 0.999999)]
    assert drawn == [1, 1, 3, 3, 2, 2, 0, 0]


def test_equal_logits_are_drawn_in_the_order_of_their_ids():
    assert [sample([2, 2, 2, 2], u) for u in (0.0, 0.25, 0.5, 0.75)] == [0, 1, 2, 3]


def test_top_k_keeps_the_lower_ids_among_equals():
    assert {sample([1, 2, 2, 2, 2], u / 100, top_k=2) for u in range(100)} == {1, 2}


@pytest.mark.parametrize(
    ("top_p", "kept"), [(1e-9, {0}), (0.5, {0}), (0.51, {0, 1}), (0.75, {0, 1}), (0.76, {0, 1, 2}), (1.0, {0, 1, 2})]
)
def test_top_p_keeps_the_smallest_prefix_that_holds_it(top_p, kept):
    # Probabilities 1/2, 1/4, 1/4 exactly.
    logits = [1 + np.log(2), 1, 1]
    assert {sample(logits, u / 100, top_p=top_p) for u in range(100)} == kept


def test_temperature_sharpens_and_flattens():
    logits = [1.0, 0.0]
    cold = sum(sample(logits, u / 1000, temperature=0.25) for u in range(1000)) / 1000
    hot = sum(sample(logits, u / 1000, temperature=4.0) for u in range(1000)) / 1000
    assert cold == pytest.approx(1 / (1 + np.exp(4)), abs=2e-3)
    assert hot == pytest.approx(1 / (1 + np.exp(0.25)), abs=2e-3)


def test_a_temperature_towards_zero_is_argmax():
    rng = np.random.default_rng(3)
    for _ in range(200):
        logits = rng.standard_normal(50).astype(np.float32)
        assert sample(logits, rng.random(), temperature=3e-35) == logits.argmax()


def test_a_permuted_vocabulary_permutes_the_choice():
    rng = np.random.default_rng(4)
    for _ in range(200):
        logits = rng.standard_normal(60).astype(np.float32)
        order, u = rng.permutation(60), rng.random()
        params = {"temperature": 0.8, "top_k": 20, "top_p": 0.9}
        assert order[sample(logits[order], u, **params)] == sample(logits, u, **params)


def test_the_penalty_divides_positive_and_multiplies_negative_logits_once_per_token():
    assert sample([2.0, 1.9], temperature=0, prompt=(0, 0, 0), repetition_penalty=1.04) == 0
    assert sample([2.0, 1.9], temperature=0, prompt=(0,), repetition_penalty=1.06) == 1
    assert sample([-1.9, -2.0], temperature=0, prompt=(0,), repetition_penalty=1.06) == 1
    assert sample([2.0, 1.9], temperature=0, prompt=(1,), repetition_penalty=0.9) == 1


def test_the_penalty_counts_the_output_too():
    sampler = DefaultSampler()
    state = sampler.new_state(SamplingParams(temperature=0, repetition_penalty=1.5), (), 4)
    logits = np.array([4.0, 3.0, 2.1, 1.0], np.float32)
    assert [sampler.sample(logits, state, 0.0) for _ in range(4)] == [0, 1, 0, 0]


def test_greedy_takes_no_notice_of_parameters():
    sampler = GreedySampler()
    state = sampler.new_state(SamplingParams(temperature=9.0, repetition_penalty=5.0), (1,), 3)
    assert sampler.sample(np.array([0.0, 2.0, 1.9], np.float32), state, 0.99) == 1
