import numpy as np
import pytest

from lattice_samplers.candidates import best_candidates, selection_size


@pytest.mark.parametrize(
    ("vocab_size", "count"),
    [(5, 5), (100, 64), (300, 256), (9_000, 64), (9_001, 64), (20_000, 256), (20_011, 256), (40_000, 1024), (49_152, 64)],
)
def test_candidates_are_the_best_logits_in_order_with_ties_by_lower_id(xp, vocab_size, count):
    rng = np.random.default_rng(vocab_size)
    logits = rng.standard_normal((6, vocab_size)).astype(np.float32)
    logits[1] = logits[1].round(1)
    logits[2] = 0.0
    logits[3] = rng.choice(np.array([0.0, -0.0], np.float32), vocab_size)
    logits[4, rng.random(vocab_size) < 0.99] = -np.inf
    logits[5] = rng.choice(np.array([np.inf, -np.inf, 1e-45, -1e-45, 3e38, -3e38], np.float32), vocab_size)
    expected = np.argsort(-logits, axis=-1, kind="stable")[:, :count]
    np.testing.assert_array_equal(np.array(best_candidates(xp, xp.array(logits), count)), expected)


@pytest.mark.parametrize(
    ("top_k", "vocab_size", "size"),
    [
        (2, 1000, 64),
        (64, 1000, 64),
        (65, 1000, 256),
        (300, 1000, 1000),
        (50, 60, 60),
        (1000, 50_000, 1024),
        (5000, 50_000, 50_000),
    ],
)
def test_a_selection_holds_top_k_and_never_more_than_the_vocabulary(top_k, vocab_size, size):
    assert selection_size(top_k, vocab_size) == size
