import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lattice_eval.likelihood import RunningMean, negative_log_likelihoods, perplexity


def test_it_is_the_negative_log_softmax_in_double_precision():
    logits = np.random.default_rng(1).normal(0, 3, (21, 50)).astype(np.float32)
    targets = np.arange(21) * 2
    expected = [
        math.log(math.fsum(math.exp(float(value)) for value in row)) - float(row[target])
        for row, target in zip(logits, targets, strict=True)
    ]
    assert negative_log_likelihoods(logits, targets) == pytest.approx(expected, rel=1e-12)


def test_large_logits_do_not_overflow_and_small_probabilities_are_exact():
    logits = np.array([[30000.0, 29000.0, -30000.0], [0.0, -np.inf, 1.0]], np.float32)
    found = negative_log_likelihoods(logits, np.array([1, 0]))
    assert found == pytest.approx([1000.0, math.log(1 + math.e)], rel=1e-12)


def test_logits_that_are_not_finite_give_no_finite_likelihood():
    logits = np.array([[np.nan, 0.0], [0.0, -np.inf], [np.inf, 0.0]], np.float32)
    with np.errstate(invalid="ignore"):
        found = negative_log_likelihoods(logits, np.array([1, 1, 0]))
    assert not np.isfinite(found).any()


def test_the_logits_are_not_changed():
    logits = np.ones((3, 4), np.float32)
    logits.flags.writeable = False
    assert negative_log_likelihoods(logits, np.zeros(3, int)) == pytest.approx([math.log(4)] * 3)


@given(st.lists(st.lists(st.floats(0, 100), max_size=7), max_size=6))
def test_blocks_of_any_size_give_the_mean_and_the_error_of_all_values(blocks):
    running = RunningMean()
    for block in blocks:
        running.add(np.array(block, np.float64))
    values = np.array([value for block in blocks for value in block])
    assert running.count == len(values)
    if len(values):
        assert running.mean == pytest.approx(values.mean(), abs=1e-9)
    if len(values) > 1:
        assert running.standard_error == pytest.approx(values.std(ddof=1) / math.sqrt(len(values)), abs=1e-7)
    else:
        assert running.standard_error is None


def test_a_perplexity_beyond_a_float_is_infinite():
    assert perplexity(math.log(20)) == pytest.approx(20)
    assert perplexity(1000.0) == math.inf
