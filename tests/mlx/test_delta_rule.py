"""The gated delta rule against the recurrence itself, token by token in float64."""

import math

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lattice_mlx.activation import LARGE
from lattice_mlx.delta_rule import delta_chunks, delta_rule, delta_step, log_decay, normalized

LENGTHS = (1, 2, 3, 15, 16, 17, 31, 32, 33, 63, 64, 65, 150, 200)
CHUNKS = (16, 64)
HEADS = {"one value head per key head": (3, 3), "two": (2, 4), "three": (1, 3)}
KEY_DIM, VALUE_DIM = 16, 24


def inputs(length, key_heads=2, heads=4, seed=0):
    """Queries, keys, values, logarithms of the decay, write strengths, state: as a model of these shapes has them."""
    rng = np.random.default_rng(seed)
    q, k = rng.normal(size=(2, length, key_heads, KEY_DIM))
    q, k = (x / np.sqrt((x * x).sum(-1, keepdims=True) + 1e-6) for x in (q, k))
    steepness = rng.uniform(0.01, 16, heads)
    bias = rng.uniform(-6, 1, heads)
    decay = -steepness * np.logaddexp(rng.normal(size=(length, heads)) + bias, 0)
    beta = 1 / (1 + np.exp(-rng.normal(size=(length, heads))))
    values = rng.normal(size=(length, heads, VALUE_DIM))
    state = rng.normal(size=(heads, KEY_DIM, VALUE_DIM))
    return [x.astype(np.float32) for x in (q * KEY_DIM**-0.5, k, values, decay, beta, state)]


def recurrence(q, k, v, decay, beta, state):
    """The definition, in float64: decay the state, write what the key does not yet find, read."""
    q, k, v, decay, beta, state = (np.asarray(x, np.float64) for x in (q, k, v, decay, beta, state))
    served = v.shape[1] // k.shape[1]
    q, k = q.repeat(served, axis=1), k.repeat(served, axis=1)
    outputs = np.empty(v.shape)
    for token in range(len(v)):
        state = state * np.exp(decay[token])[:, None, None]
        found = np.einsum("hkv,hk->hv", state, k[token])
        written = beta[token][:, None] * (v[token] - found)
        state = state + k[token][:, :, None] * written[:, None, :]
        outputs[token] = np.einsum("hkv,hk->hv", state, q[token])
    return outputs, state


def on_device(arrays):
    return [mx.array(x) for x in arrays]


def check(result, expected, tolerance=3e-6):
    """Both finite and equal but for rounding."""
    for got, wanted in zip(result, expected, strict=True):
        assert got.dtype == mx.float32
        assert got.shape == wanted.shape
        # Not "any greater": the comparison must fail for NaN as well.
        assert np.abs(np.array(got) - wanted).max() <= tolerance


@pytest.mark.parametrize("chunk", CHUNKS)
@pytest.mark.parametrize("length", LENGTHS)
def test_chunks_of_any_length_compute_the_recurrence(length, chunk):
    arrays = inputs(length, seed=length)
    check(delta_chunks(*on_device(arrays), chunk), recurrence(*arrays))


@pytest.mark.parametrize("heads", HEADS.values(), ids=HEADS)
@pytest.mark.parametrize("length", [1, 3, 4, 40])
def test_a_key_head_serves_a_run_of_value_heads(length, heads):
    arrays = inputs(length, *heads)
    check(delta_rule(*on_device(arrays)), recurrence(*arrays))
    check(delta_chunks(*on_device(arrays)), recurrence(*arrays))


@pytest.mark.parametrize("length", [*range(1, 10), 150])
def test_short_and_long_sequences_compute_the_same_rule(length):
    arrays = inputs(length, seed=length)
    check(delta_rule(*on_device(arrays)), recurrence(*arrays))


@pytest.mark.parametrize("chunk", CHUNKS)
def test_an_empty_state_is_a_start(chunk):
    arrays = inputs(70)
    arrays[-1] = np.zeros_like(arrays[-1])
    check(delta_chunks(*on_device(arrays), chunk), recurrence(*arrays))


@pytest.mark.parametrize("chunk", CHUNKS)
def test_the_same_key_at_every_token_stays_exact(chunk):
    # The triangular system is then as full as it can be; its inverse made of powers would cancel away.
    arrays = inputs(200)
    arrays[1] = np.broadcast_to(arrays[1][:1], arrays[1].shape).copy()
    arrays[3] = np.full_like(arrays[3], -1e-4)
    arrays[4] = np.full_like(arrays[4], 0.95)
    check(delta_chunks(*on_device(arrays), chunk), recurrence(*arrays), 2e-5)


@pytest.mark.parametrize("chunk", CHUNKS)
@pytest.mark.parametrize("strength", [-50.0, -200.0, -1000.0, -math.inf])
def test_a_decay_that_underflows_forgets_and_nothing_else(strength, chunk):
    arrays = inputs(130)
    arrays[3] = np.full_like(arrays[3], strength)
    check(delta_chunks(*on_device(arrays), chunk), recurrence(*arrays))
    first = [*(x[:1] for x in arrays[:5]), arrays[5]]
    check(delta_rule(*on_device(first)), recurrence(*first))


@pytest.mark.parametrize("chunk", CHUNKS)
@pytest.mark.parametrize("strength", [-20.0, -1000.0, -math.inf])
def test_weak_decays_keep_their_digits_beside_strong_ones(strength, chunk):
    # Differences of running sums would leave an error of 7e-4 here.
    arrays = inputs(130)
    strong = np.random.default_rng(1).random(arrays[3].shape) < 0.3
    arrays[3] = np.where(strong, strength, -1e-3).astype(np.float32)
    check(delta_chunks(*on_device(arrays), chunk), recurrence(*arrays))


@pytest.mark.parametrize("chunk", CHUNKS)
def test_without_decay_and_with_full_writes_values_are_remembered(chunk):
    # As many orthogonal keys as the state has rows: each value is read back as it was written.
    keys = np.eye(KEY_DIM, dtype=np.float32)[:, None]
    values = np.random.default_rng(0).normal(size=(KEY_DIM, 1, VALUE_DIM)).astype(np.float32)
    ones, state = np.ones((KEY_DIM, 1), np.float32), np.zeros((1, KEY_DIM, VALUE_DIM), np.float32)
    outputs, state = delta_chunks(*on_device([keys, keys, values, 0 * ones, ones, state]), chunk)
    np.testing.assert_allclose(np.array(outputs), values, atol=1e-6)
    np.testing.assert_allclose(np.array(state)[0], values[:, 0], atol=1e-6)


def test_what_is_large_enough_for_the_fast_exponential_is_exact_too():
    length, heads = 256, 4
    assert length * heads * 16 > LARGE
    arrays = inputs(length, 2, heads)
    arrays[3][::7] = -math.inf
    arrays[3][3::7] = -75
    check(delta_chunks(*on_device(arrays), 16), recurrence(*arrays), 1e-5)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.integers(1, 120), st.data())
def test_a_sequence_in_parts_is_the_whole_sequence(length, data):
    cuts = sorted(data.draw(st.sets(st.integers(1, length), max_size=4)) | {length})
    *tokens, state = on_device(inputs(length))
    whole = delta_rule(*tokens, state, 16)
    outputs, start = [], 0
    for stop in cuts:
        part, state = delta_rule(*(x[start:stop] for x in tokens), state, 16)
        outputs.append(part)
        start = stop
    check((mx.concatenate(outputs), state), [np.array(x) for x in whole], 1e-5)


def test_a_step_is_a_chunk_of_one_token():
    arrays = on_device(inputs(1))
    outputs, state = delta_step(*arrays[:5], arrays[5][None])
    expected = [np.array(x) for x in delta_chunks(*arrays)]
    check((outputs, state[0]), expected)


@pytest.mark.parametrize("heads", HEADS.values(), ids=HEADS)
def test_rows_of_a_step_do_not_meet(heads):
    rows = [inputs(1, *heads, seed=row) for row in range(5)]
    together = [np.concatenate([row[place] for row in rows]) for place in range(5)]
    states = np.stack([row[5] for row in rows])
    outputs, states = delta_step(*on_device(together), mx.array(states))
    for row, arrays in enumerate(rows):
        check((outputs[row : row + 1], states[row]), recurrence(*arrays))


def test_the_state_given_is_left_as_it_was():
    arrays = on_device(inputs(20))
    before = np.array(arrays[5])
    mx.eval(delta_rule(*arrays), delta_step(*(x[:1] for x in arrays[:5]), arrays[5][None]))
    assert np.array_equal(np.array(arrays[5]), before)


@pytest.mark.parametrize("dtype", [mx.bfloat16, mx.float16], ids=["bfloat16", "float16"])
@pytest.mark.parametrize("length", [2, 40, 64])
def test_half_precision_inputs_are_computed_in_float32(dtype, length):
    *tokens, state = on_device(inputs(length))
    narrow = [x.astype(dtype) for x in tokens]
    wide = [np.array(x.astype(mx.float32)) for x in narrow]
    check(delta_rule(*narrow, state), recurrence(*wide, np.array(state)))


@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16, mx.float16], ids=["float32", "bfloat16", "float16"])
def test_normalised_vectors_have_length_one_times_scale(dtype):
    x = mx.array(np.random.default_rng(0).normal(size=(5, 3, 64)).astype(np.float32)).astype(dtype)
    exact = np.array(x.astype(mx.float32), dtype=np.float64)
    got = normalized(x, 0.125)
    assert got.dtype == mx.float32
    wanted = 0.125 * exact / np.sqrt((exact**2).sum(-1, keepdims=True) + 1e-6)
    np.testing.assert_allclose(np.array(got), wanted, rtol=2e-6)
    np.testing.assert_allclose(np.linalg.norm(np.array(normalized(x)), axis=-1), 1, rtol=1e-5)


def test_normalising_adds_to_the_sum_of_squares_and_not_to_their_mean():
    x = mx.full((1, 64), 1e-4)
    # 64 * 1e-8 beside 1e-6.
    np.testing.assert_allclose(np.array(normalized(x)), 1e-4 / math.sqrt(1.64e-6), rtol=1e-5)
    assert np.array_equal(np.array(normalized(mx.zeros((2, 64)))), np.zeros((2, 64)))


@pytest.mark.parametrize("argument", [-100.0, -80.0, -30.0, -15.0, -1.0, 0.0, 1.0, 15.0, 30.0, 90.0, 1e4, 1e30])
def test_the_decay_is_exact_in_both_tails(argument):
    a_log, bias = 0.7, 0.0
    got = log_decay(mx.array([[argument]]), mx.array([a_log]), mx.array([bias]))
    assert got.dtype == mx.float32
    softplus = argument + math.log1p(math.exp(-argument)) if argument > 0 else math.log1p(math.exp(argument))
    np.testing.assert_allclose(np.array(got), [[-math.exp(a_log) * softplus]], rtol=2e-6, atol=1e-37)


def test_every_value_head_has_its_own_steepness_and_bias():
    rng = np.random.default_rng(0)
    a, a_log, bias = rng.normal(size=(7, 5)), rng.normal(size=5), rng.normal(size=5)
    got = log_decay(*(mx.array(x.astype(np.float32)) for x in (a, a_log, bias)))
    np.testing.assert_allclose(np.array(got), -np.exp(a_log) * np.logaddexp(a + bias, 0), rtol=2e-6)


def test_a_half_precision_decay_is_computed_in_float32():
    a, a_log, bias = (mx.array([x]).astype(mx.bfloat16) for x in (1.3, 2.1, -0.4))
    exact = [np.array(x.astype(mx.float32), dtype=np.float64) for x in (a, a_log, bias)]
    got = log_decay(a[None], a_log, bias)
    assert got.dtype == mx.float32
    np.testing.assert_allclose(np.array(got)[0], -np.exp(exact[1]) * np.logaddexp(exact[0] + exact[2], 0), rtol=2e-6)


@pytest.mark.parametrize("a_log", [80.0, 100.0, 1000.0, math.inf])
@pytest.mark.parametrize("a", [-1e30, -1000.0, -200.0, 0.0, 200.0, 1e30])
def test_a_steepness_that_overflows_is_never_nan(a_log, a):
    decay = log_decay(mx.array([[a]]), mx.array([a_log]), mx.array([0.0]))
    value = np.array(decay).item()
    assert not math.isnan(value)
    assert value <= 0
    *tokens, state = inputs(20, 1, 1)
    tokens[3] = np.full_like(tokens[3], value)
    check(delta_chunks(*on_device([*tokens, state])), recurrence(*tokens, state))
