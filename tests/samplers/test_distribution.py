import numpy as np
import pytest

from lattice_core.types import SamplingParams
from lattice_samplers.default_sampler import DefaultSampler

DRAWS = 20_000


def expected_probabilities(logits, temperature, top_k, top_p):
    """Straight from the definition, in float64."""
    order = sorted(range(len(logits)), key=lambda i: (-logits[i], i))[:top_k]
    weights = np.exp(np.array([logits[i] for i in order]) / temperature)
    probabilities = weights / weights.sum()
    kept = next(n for n in range(1, len(order) + 1) if probabilities[:n].sum() >= top_p)
    result = np.zeros(len(logits))
    result[order[:kept]] = probabilities[:kept] / probabilities[:kept].sum()
    return result


@pytest.mark.parametrize(("temperature", "top_k", "top_p"), [(1.0, 30, 1.0), (0.7, 12, 0.9), (1.5, 20, 0.6)])
def test_frequencies_of_20000_draws_follow_the_definition(xp, temperature, top_k, top_p):
    rng = np.random.default_rng(11)
    logits = rng.standard_normal(30)
    expected = expected_probabilities(logits, temperature, top_k, top_p)
    sampler = DefaultSampler()
    params = SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p)
    states = [sampler.new_state(params, (), 30)] * 1000
    batch = xp.array(np.tile(logits.astype(np.float32), (1000, 1)))
    counts = np.zeros(30)
    for _ in range(DRAWS // 1000):
        tokens = np.array(sampler.sample_batch(batch, states, rng.random(1000).tolist()))
        counts += np.bincount(tokens, minlength=30)
    possible = expected > 0
    assert counts[~possible].sum() == 0
    wanted = expected[possible] * DRAWS
    statistic = ((counts[possible] - wanted) ** 2 / wanted).sum()
    freedom = possible.sum() - 1
    # The mean of chi-square is its degrees of freedom, its variance twice that; five deviations are beyond chance.
    assert statistic < freedom + 5 * np.sqrt(2 * freedom)
