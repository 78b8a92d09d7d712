"""Rows of any length beside one another: what a row computes never depends on the others."""

import mlx.core as mx
import numpy as np
import pytest

from lattice_core.types import Pending, RowInput, Want
from tests.mlx.naive_llama import NaiveLlama, random_checkpoint

BOUND = 1e-3
CHECKPOINT = random_checkpoint(seed=3)


@pytest.fixture(scope="module")
def small(loaded):
    return loaded(CHECKPOINT)


@pytest.fixture
def model(small):
    small.reset()
    return small


@pytest.fixture(scope="module")
def naive():
    return NaiveLlama(CHECKPOINT)


def random_tokens(seed, count):
    return np.random.default_rng(seed).integers(0, 96, count).tolist()


class Row:
    """One sequence and all tokens that were fed to it."""

    def __init__(self, model, seed, length):
        self.state, self.ids, self.script = model.new_state(), [], random_tokens(seed, length)

    def next(self, count):
        tokens = tuple(self.script[len(self.ids) : len(self.ids) + count])
        self.ids += tokens
        return RowInput(self.state, tokens)


def check_step(model, naive, rows, counts):
    logits = model.forward([row.next(count) for row, count in zip(rows, counts, strict=True)]).array
    model.launch([logits])
    for row, values in zip(rows, model.read_logits(logits), strict=True):
        assert np.abs(values - naive.logits(row.ids)[-1]).max() < BOUND, f"row of {len(row.ids)} tokens"


def test_rows_in_several_slabs_decode_together(model, naive):
    rows = [Row(model, seed, 1400) for seed in range(6)]
    lengths = [3, 250, 255, 256, 520, 1030]
    check_step(model, naive, rows, lengths)
    for _ in range(6):  # two of them outgrow their slab meanwhile
        check_step(model, naive, rows, [1] * 6)


def test_prefill_chunks_run_beside_decoding_rows(model, naive):
    decoding = [Row(model, seed, 300) for seed in range(3)]
    check_step(model, naive, decoding, [5, 60, 200])
    newcomer = Row(model, 9, 300)
    for chunk in (40, 1, 100, 17):
        check_step(model, naive, [*decoding, newcomer], [1, 1, 1, chunk])


def test_logits_come_in_the_order_of_the_plan(model, naive):
    rows = [Row(model, seed, 300) for seed in range(4)]
    check_step(model, naive, rows, [270, 9, 5, 7])
    for order in ([3, 1, 0, 2], [0, 3, 2, 1]):
        check_step(model, naive, [rows[i] for i in order], [1, 1, 2, 1])


def test_rows_leave_and_others_take_their_places(model, naive):
    rows = [Row(model, seed, 300) for seed in range(5)]
    check_step(model, naive, rows, [11, 12, 13, 14, 15])
    check_step(model, naive, rows, [1] * 5)
    for leaving in (1, 0, 2):  # the middle, the first, the last
        model.release([rows.pop(leaving).state])
        check_step(model, naive, rows, [1] * len(rows))
        rows.append(Row(model, 20 + leaving, 300))
        check_step(model, naive, rows, [*[1] * (len(rows) - 1), 30])
        check_step(model, naive, rows, [1] * len(rows))


def test_a_row_that_sits_out_keeps_its_state(model, naive):
    rows = [Row(model, seed, 300) for seed in range(3)]
    check_step(model, naive, rows, [20, 30, 40])
    check_step(model, naive, rows, [1, 1, 1])
    for _ in range(3):
        check_step(model, naive, [rows[0], rows[2]], [1, 1])
    check_step(model, naive, rows, [1, 1, 1])


def test_a_full_row_that_sits_out_is_not_overwritten(model, naive):
    rows = [Row(model, seed, 300) for seed in range(2)]
    check_step(model, naive, rows, [254, 100])
    for _ in range(2):
        check_step(model, naive, rows, [1, 1])
    assert len(rows[0].ids) == 256  # its slot is full
    check_step(model, naive, [rows[1]], [1])
    check_step(model, naive, rows, [1, 1])


def test_a_row_fills_the_whole_context(loaded, feed):
    checkpoint = random_checkpoint(max_position_embeddings=300)
    model = loaded(checkpoint)
    ids = random_tokens(0, 300)
    state, other = model.new_state(), model.new_state()
    feed(model, other, ids[:10])
    feed(model, state, ids[:297])
    expected = NaiveLlama(checkpoint).logits(ids)
    for index in range(297, 300):
        logits = feed(model, state, ids[index : index + 1])
        assert np.abs(logits[0] - expected[index]).max() < BOUND
    feed(model, other, ids[10:11])  # the full row has no room for the token of a slot that sits out
    with pytest.raises(ValueError, match="would hold 301 tokens, the context is 300"):
        model.forward([RowInput(state, (1,))])
    with pytest.raises(ValueError, match="would hold 311 tokens, the context is 300"):
        model.forward([RowInput(other, (1,) * 300)])


def test_pending_tokens_equal_known_ones(model):
    rows = [model.new_state() for _ in range(3)]
    twins = [model.new_state() for _ in range(3)]
    prompts = [tuple(random_tokens(seed, 10 + seed)) for seed in range(3)]
    first = model.forward([RowInput(state, prompt) for state, prompt in zip(rows, prompts, strict=True)]).array
    model.forward([RowInput(state, prompt) for state, prompt in zip(twins, prompts, strict=True)])
    sampled = mx.argmax(first, axis=-1)
    ids = model.read(sampled)
    other = mx.array([7, 8], mx.uint32)  # of another sampling, and of another type
    for picks in (
        [Pending(sampled, 0), Pending(sampled, 1), Pending(sampled, 2)],
        [Pending(sampled, 2), Pending(sampled, 0), Pending(sampled, 1)],
        [Pending(sampled, 1), (5,), Pending(other, 1)],
        [(5,), (6,), Pending(sampled, 0)],
        [Pending(other, 0), (1, 2, 3), Pending(sampled, 0)],
    ):
        known = [
            ((ids if pick.tokens is sampled else [7, 8])[pick.index],) if isinstance(pick, Pending) else pick for pick in picks
        ]
        lazy = model.forward([RowInput(state, pick) for state, pick in zip(rows, picks, strict=True)]).array
        plain = model.forward([RowInput(state, tokens) for state, tokens in zip(twins, known, strict=True)]).array
        model.launch([lazy, plain])
        np.testing.assert_array_equal(model.read_logits(lazy), model.read_logits(plain))


@pytest.mark.parametrize("seed", range(4))
def test_any_history_of_a_batch_equals_each_row_alone(model, naive, seed):
    rng = np.random.default_rng(seed)
    rows = []
    for turn in range(40):
        action = rng.random()
        if len(rows) < 2 or (action < 0.25 and len(rows) < 7):
            row = Row(model, 1000 * seed + turn, 2000)
            rows.append(row)
            check_step(model, naive, [row], [int(rng.choice([1, 2, 30, 254, 255, 256, 257, 511]))])
        elif action < 0.33:
            model.release([rows.pop(rng.integers(len(rows))).state])
        elif action < 0.42:
            row = rows[rng.integers(len(rows))]
            twin = Row(model, 0, 0)
            twin.script, twin.ids = list(row.script), list(row.ids)
            model.release([twin.state])
            [twin.state] = model.fork([row.state])
            twin.script[len(twin.ids) :] = random_tokens(turn, 200)
            rows.append(twin)
        elif action < 0.5:
            row = rows[rng.integers(len(rows))]
            row.ids = row.ids[: rng.integers(len(row.ids))]
            assert model.rollback([row.state], [len(row.ids)])
        else:
            taking_part = [row for row in rng.permutation(np.array(rows, dtype=object)) if rng.random() < 0.8] or rows[:1]
            counts = [1 if rng.random() < 0.85 else int(rng.integers(2, 40)) for _ in taking_part]
            check_step(model, naive, taking_part, counts)
    assert model.live_states() == len(rows)


def test_wants_of_all_kinds_in_one_plan(model, naive):
    rows = [Row(model, seed, 100) for seed in range(4)]
    plan = [row.next(count) for row, count in zip(rows, (4, 1, 6, 1), strict=True)]
    wants = (Want.ALL, Want.LAST, Want.NONE, Want.ALL)
    logits = model.forward([RowInput(row.state, row.tokens, want) for row, want in zip(plan, wants, strict=True)]).array
    expected = [naive.logits(row.ids) for row in rows]
    assert np.abs(model.read_logits(logits) - np.concatenate([expected[0], expected[1], expected[3]])).max() < BOUND
