"""What a row keeps from token to token, and that its neighbours cannot change it."""

import mlx.core as mx
import numpy as np
import pytest

from lattice_core.types import SamplingParams
from lattice_samplers.default_sampler import DefaultSampler

VOCAB = 300
STEPS = 12


def logits_of(row, step, history):
    """A toy model: a row's logits are a function of its own tokens alone."""
    seed = [row, step, *history]
    return np.random.default_rng(seed).standard_normal(VOCAB).astype(np.float32) * 3


def draw_of(row, step):
    return float(np.random.default_rng([99, row, step]).integers(2**24) / 2**24)


PARAMS = [
    SamplingParams(temperature=0.7, top_k=50, top_p=0.9, repetition_penalty=1.1),
    SamplingParams(temperature=0.0),
    SamplingParams(temperature=1.0),
    SamplingParams(temperature=0.0, repetition_penalty=1.3),
    SamplingParams(temperature=0.9, top_k=200, repetition_penalty=0.9),
    SamplingParams(temperature=1.3, top_k=7, top_p=0.5, repetition_penalty=1.2),
]


def run(xp, schedule):
    """Sample rows by a schedule: for each step the rows that take part, in order. Returns each row's tokens."""
    sampler = DefaultSampler()
    states = {row: sampler.new_state(PARAMS[row % len(PARAMS)], (row, 5), VOCAB) for rows in schedule for row in rows}
    output = {row: [] for row in states}
    for rows in schedule:
        logits = np.stack([logits_of(row, len(output[row]), output[row]) for row in rows])
        draws = [draw_of(row, len(output[row])) for row in rows]
        tokens = np.array(sampler.sample_batch(xp.array(logits), [states[row] for row in rows], draws)).tolist()
        for row, token in zip(rows, tokens, strict=True):
            output[row].append(token)
    return output


def test_a_row_has_the_same_tokens_alone_and_in_any_batch(xp):
    count = 9
    alone = {row: run(xp, [[row]] * STEPS)[row] for row in range(count)}
    together = run(xp, [list(range(count))] * STEPS)
    rng = np.random.default_rng(0)
    shuffled = run(xp, [rng.permutation(count).tolist() for _ in range(STEPS)])
    # Rows join late, leave early, and sit out steps; each still makes the same tokens.
    ragged = run(xp, [[row for row in range(count) if rng.random() < 0.6] or [0] for _ in range(STEPS)])
    assert together == alone
    assert shuffled == alone
    assert all(tokens == alone[row][: len(tokens)] for row, tokens in ragged.items())
    assert sum(map(len, ragged.values())) > count


def test_host_and_device_steps_of_one_row_can_alternate(xp, tokens_near):
    sampler = DefaultSampler()
    state = sampler.new_state(SamplingParams(temperature=0.0, repetition_penalty=1.4), (3,), VOCAB)
    other = sampler.new_state(SamplingParams(temperature=0.0, repetition_penalty=1.4), (4,), VOCAB)
    reference = sampler.new_state(SamplingParams(temperature=0.0, repetition_penalty=1.4), (3,), VOCAB)
    logits = np.linspace(3, 2, VOCAB, dtype=np.float32)
    for step in range(STEPS):
        if step % 3:
            token = sampler.sample(logits, state, 0.0)
        else:
            token = int(np.array(sampler.sample_batch(xp.array(np.stack([logits] * 2)), [state, other], [0.0, 0.0]))[0])
        assert token == sampler.sample(logits, reference, 0.0)


def test_the_penalty_reaches_beyond_64_tokens(xp):
    sampler = DefaultSampler()
    state = sampler.new_state(SamplingParams(temperature=0.0, repetition_penalty=10.0), (), VOCAB)
    logits = xp.array(np.linspace(3, 2, VOCAB, dtype=np.float32)[None])
    tokens = [int(np.array(sampler.sample_batch(logits, [state], [0.0]))[0]) for _ in range(VOCAB)]
    assert tokens == list(range(VOCAB))


def test_a_prompt_longer_than_64_tokens_is_penalised_in_full(xp):
    sampler = DefaultSampler()
    state = sampler.new_state(SamplingParams(temperature=0.0, repetition_penalty=10.0), tuple(range(200)), VOCAB)
    logits = xp.array(np.linspace(3, 2, VOCAB, dtype=np.float32)[None])
    assert int(np.array(sampler.sample_batch(logits, [state], [0.0]))[0]) == 200


def test_a_chain_of_unread_tokens_equals_one_that_reads_each():
    mx.set_default_device(mx.cpu)
    params = SamplingParams(temperature=0.8, top_k=40, top_p=0.95, repetition_penalty=1.5)
    sampler = DefaultSampler()
    table = mx.array(np.random.default_rng(5).standard_normal((VOCAB, VOCAB)).astype(np.float32))

    def chain(read):
        states = [sampler.new_state(params, (row,), VOCAB) for row in range(3)]
        tokens, kept = mx.array([0, 1, 2]), []
        for step in range(40):
            # The next logits hang on tokens that nobody has read, as a decoding row's do.
            tokens = sampler.sample_batch(table[tokens], states, [draw_of(row, step) for row in range(3)])
            if read:
                tokens = mx.array(tokens.tolist())
            kept.append(tokens)
        return mx.stack(kept).tolist()

    assert chain(read=False) == chain(read=True)


def test_penalties_stay_stacked_while_the_batch_stays_the_same(xp):
    sampler = DefaultSampler()
    params = SamplingParams(temperature=0.0, repetition_penalty=1.1)
    states = [sampler.new_state(params, (row,), VOCAB) for row in range(4)]
    logits = xp.array(np.zeros((4, VOCAB), np.float32))
    sampler.sample_batch(logits, states, [0.0] * 4)
    group = states[0].group
    sampler.sample_batch(logits, states, [0.0] * 4)
    assert all(state.group is group for state in states)
    sampler.sample_batch(logits[:3], states[:3], [0.0] * 3)
    assert states[0].group is not group
    assert states[3].group is group


@pytest.mark.parametrize("params", PARAMS, ids=str)
def test_a_failed_neighbour_leaves_a_rows_state_alone(xp, params):
    sampler = DefaultSampler()
    pair = [sampler.new_state(params, (1,), VOCAB) for _ in range(2)]
    single = sampler.new_state(params, (1,), VOCAB)
    for step in range(5):
        row = logits_of(0, step, ())
        draw = draw_of(0, step)
        broken = np.stack([np.full(VOCAB, np.nan, np.float32), row])
        both = np.array(sampler.sample_batch(xp.array(broken), pair, [draw, draw])).tolist()
        alone = np.array(sampler.sample_batch(xp.array(row[None]), [single], [draw])).tolist()
        assert both == [-1, *alone]


def test_a_call_that_fails_leaves_every_state_as_it_was(xp):
    sampler = DefaultSampler()
    states = [sampler.new_state(params, (1,), VOCAB) for params in PARAMS]
    rows = np.stack([logits_of(row, 0, ()) for row in range(len(states))])
    draws = [draw_of(row, 0) for row in range(len(states))]
    # This row is of a kind of its own, which is sampled last.
    draws[4] = "not a number"
    with pytest.raises((TypeError, ValueError)):
        sampler.sample_batch(xp.array(rows), states, draws)
    noted = [state.take_to_host() for state in states]
    assert [None if penalty is None else np.flatnonzero(penalty != 1).tolist() for penalty in noted] == [
        None if params.repetition_penalty == 1 else [1] for params in PARAMS
    ]
