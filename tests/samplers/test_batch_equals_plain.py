"""The batch form against the plain form, on arrays of both libraries."""

import warnings

import numpy as np
import pytest

from lattice_core.errors import SamplerError
from lattice_core.protocols import BatchSampler
from lattice_core.types import SamplingParams
from lattice_samplers.default_sampler import DefaultSampler
from lattice_samplers.greedy_sampler import GreedySampler

NAN, INF = np.nan, np.inf
ROWS = 24


def random_params(rng):
    return SamplingParams(
        temperature=float(rng.choice([0.0, 1e-36, 0.01, 0.5, 0.7, 1.0, 2.0, 50.0])),
        top_k=int(rng.choice([0, 1, 2, 5, 50, 64, 65, 200, 10**9])),
        top_p=float(rng.choice([1e-6, 0.1, 0.5, 0.9, 0.99, 1.0])),
        repetition_penalty=float(rng.choice([1.0, 1.0, 1.1, 1.5, 0.8])),
    )


def random_logits(rng, vocab_size):
    logits = (rng.standard_normal(vocab_size) * rng.choice([0.1, 1, 5, 100])).astype(np.float32)
    match rng.integers(8):
        case 0:
            logits = logits.round(1)
        case 1:
            logits[rng.random(vocab_size) < 0.9] = -INF
            logits[rng.integers(vocab_size)] = 1.0
        case 2:
            logits[rng.random(vocab_size) < 0.2] = NAN
            logits[rng.integers(vocab_size)] = 1.0
        case 3:
            logits[rng.integers(vocab_size, size=2)] = INF
    return logits


@pytest.mark.parametrize(("vocab_size", "batches"), [(7, 60), (259, 60), (1000, 40), (9_001, 8)])
def test_thousands_of_random_rows_choose_the_plain_forms_token(xp, tokens_near, vocab_size, batches):
    rng = np.random.default_rng(vocab_size)
    sampler = DefaultSampler()
    certain = 0
    for _ in range(batches):
        states, penalties = [], []
        for _ in range(ROWS):
            params, prompt = random_params(rng), tuple(map(int, rng.integers(vocab_size, size=20)))
            states.append(sampler.new_state(params, prompt, vocab_size))
            penalties.append(None if states[-1].penalty is None else states[-1].penalty.copy())
        logits = np.stack([random_logits(rng, vocab_size) for _ in range(ROWS)])
        u = (rng.integers(2**24, size=ROWS) / 2**24).tolist()
        tokens = np.array(sampler.sample_batch(xp.array(logits), states, u)).tolist()
        for row, state, penalty, draw, token in zip(logits, states, penalties, u, tokens, strict=True):
            allowed = tokens_near(row, state.settings, penalty, draw)
            assert token in allowed, state.settings
            certain += len(allowed) == 1
    assert certain > 0.98 * batches * ROWS


def test_greedy_rows_without_a_penalty_equal_the_plain_form_exactly(xp):
    rng = np.random.default_rng(1)
    for sampler in (DefaultSampler(), GreedySampler()):
        logits = np.stack([random_logits(rng, 500) for _ in range(200)])
        states = [sampler.new_state(SamplingParams(temperature=0), (), 500) for _ in logits]
        u = [0.5] * len(logits)
        expected = [sampler.sample(row, state, 0.5) for row, state in zip(logits, states, strict=True)]
        assert np.array(sampler.sample_batch(xp.array(logits), states, u)).tolist() == expected


def test_a_masked_token_is_never_chosen(xp):
    rng = np.random.default_rng(2)
    sampler = DefaultSampler()
    for _ in range(100):
        allowed = rng.random((ROWS, 40)) < 0.1
        allowed[:, 7] = True
        logits = np.where(allowed, rng.standard_normal((ROWS, 40)), -INF).astype(np.float32)
        states = [sampler.new_state(random_params(rng), (1, 7), 40) for _ in range(ROWS)]
        tokens = np.array(sampler.sample_batch(xp.array(logits), states, [1 - 2**-53] * ROWS))
        assert allowed[np.arange(ROWS), tokens].all()


@pytest.mark.parametrize("draws", [(0.0, 0.25, 0.5, 0.75)])
@pytest.mark.parametrize(
    ("top_p", "chosen"), [(1.0, [0, 1, 2, 3]), (0.75, [0, 0, 1, 2]), (0.5, [0, 0, 1, 1]), (0.51, [0, 0, 1, 2])]
)
def test_boundaries_that_float32_holds_exactly_fall_as_in_the_plain_form(xp, top_p, chosen, draws):
    sampler = DefaultSampler()
    logits = np.array([[3.0] * 4] * 4, np.float32)
    states = [sampler.new_state(SamplingParams(top_p=top_p), (), 4) for _ in draws]
    assert np.array(sampler.sample_batch(xp.array(logits), states, draws)).tolist() == chosen
    assert [sampler.sample(row, state, u) for row, state, u in zip(logits, states, draws, strict=True)] == chosen


@pytest.mark.parametrize("u", [0.0, 0.5, 1 - 2**-53])
def test_the_first_infinite_logit_is_taken_whatever_is_drawn(xp, u):
    sampler = DefaultSampler()
    logits = np.array([[1.0, INF, 5.0, INF], [NAN, 0.0, INF, -INF]], np.float32)
    states = [sampler.new_state(SamplingParams(top_p=0.9, repetition_penalty=1.1), (1,), 4) for _ in logits]
    assert np.array(sampler.sample_batch(xp.array(logits), states, [u, u])).tolist() == [1, 2]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("penalty", [1.0, 1.2])
@pytest.mark.parametrize("bad", [[NAN] * 4, [-INF] * 4, [NAN, -INF, -INF, NAN]])
def test_a_row_without_any_token_is_marked_and_its_neighbour_is_not(xp, temperature, penalty, bad):
    sampler = DefaultSampler()
    params = SamplingParams(temperature=temperature, repetition_penalty=penalty)
    states = [sampler.new_state(params, (), 4) for _ in range(2)]
    logits = np.array([bad, [0, 0, 60, 0]], np.float32)
    assert np.array(sampler.sample_batch(xp.array(logits), states, [0.5, 0.5])).tolist() == [-1, 2]
    with pytest.raises(SamplerError):
        sampler.sample(logits[0], states[0], 0.5)


def test_extreme_logits_raise_no_warning(xp):
    sampler = DefaultSampler()
    logits = np.array([[3e38, -3e38, 1e-45, 0.0], [INF, -INF, NAN, INF], [-INF, -INF, -INF, -INF]], np.float32)
    for params in (SamplingParams(temperature=1e-34, repetition_penalty=0.01), SamplingParams(repetition_penalty=1e30)):
        states = [sampler.new_state(params, (0, 1), 4) for _ in logits]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert np.array(sampler.sample_batch(xp.array(logits), states, [0.0, 0.5, 0.5])).tolist()[1:] == [0, -1]


def test_a_long_flat_tail_keeps_its_weight(xp):
    vocab_size, tail = 200_000, 1e-6
    logits = np.full((1, vocab_size), np.log(tail), np.float32)
    logits[0, 0] = 0.0
    sampler = DefaultSampler()
    total = 1 + tail * (vocab_size - 1)
    for rank in (1_000, 150_000, 199_990):
        u = (1 + tail * rank) / total
        state = sampler.new_state(SamplingParams(), (), vocab_size)
        token = int(np.array(sampler.sample_batch(xp.array(logits), [state], [u]))[0])
        assert token == pytest.approx(rank, abs=100)


def test_both_samplers_have_the_batch_form():
    assert isinstance(DefaultSampler(), BatchSampler)
    assert isinstance(GreedySampler(), BatchSampler)
