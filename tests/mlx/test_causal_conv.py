"""The causal convolution against its definition, one output at a time in float64."""

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lattice_mlx.causal_conv import causal_conv, causal_conv_step


def inputs(length, taps, channels=6, seed=0):
    rng = np.random.default_rng(seed)
    shapes = (length, channels), (taps - 1, channels), (taps, channels)
    return [rng.normal(size=shape).astype(np.float32) for shape in shapes]


def definition(x, window, weight):
    """Every output is the sum of the last inputs, each times its tap; the last tap meets the present input."""
    x, window, weight = (np.asarray(array, np.float64) for array in (x, window, weight))
    taps = len(weight)
    y = np.zeros(x.shape)
    for token in range(len(x)):
        for tap in range(taps):
            place = token - (taps - 1) + tap
            y[token] += weight[tap] * (x[place] if place >= 0 else window[len(window) + place])
    return y, np.concatenate([window, x])[len(x) :]


def check(result, expected):
    for got, wanted in zip(result, expected, strict=True):
        assert got.shape == wanted.shape
        np.testing.assert_allclose(np.array(got.astype(mx.float32)), wanted, atol=2e-6)


def on_device(arrays):
    return [mx.array(x) for x in arrays]


@pytest.mark.parametrize("taps", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 17, 64, 200])
def test_any_length_and_kernel_follow_the_definition(length, taps):
    arrays = inputs(length, taps, seed=length)
    check(causal_conv(*on_device(arrays)), definition(*arrays))


def test_large_inputs_follow_the_definition():
    arrays = inputs(150, 4, channels=3000)
    check(causal_conv(*on_device(arrays)), definition(*arrays))


def test_the_last_tap_meets_the_present_input_and_the_first_the_oldest():
    x, window = mx.array([[10.0], [20.0]]), mx.array([[1.0], [2.0], [3.0]])
    for tap, seen in enumerate(([1, 2], [2, 3], [3, 10], [10, 20])):
        y, _ = causal_conv(x, window, mx.array(np.eye(4, dtype=np.float32)[tap][:, None]))
        assert np.array(y)[:, 0].tolist() == seen


def test_channels_do_not_meet():
    x, window, weight = inputs(9, 4, channels=5)
    other = [array.copy() for array in (x, window)]
    for array in other:
        array[:, 3] = 99
    before, after = (np.array(causal_conv(*on_device(arrays))[0]) for arrays in ((x, window, weight), (*other, weight)))
    assert np.array_equal(np.delete(before, 3, axis=1), np.delete(after, 3, axis=1))


def test_outputs_do_not_see_later_inputs():
    x, window, weight = inputs(9, 4)
    later = x.copy()
    later[5:] = 99
    before, after = (np.array(causal_conv(*on_device((array, window, weight)))[0]) for array in (x, later))
    assert np.array_equal(before[:5], after[:5])
    assert not np.array_equal(before[5], after[5])


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.integers(1, 40), st.integers(2, 5), st.data())
def test_a_sequence_in_parts_is_the_whole_sequence(length, taps, data):
    cuts = sorted(data.draw(st.sets(st.integers(1, length), max_size=5)) | {length})
    x, window, weight = on_device(inputs(length, taps))
    whole = causal_conv(x, window, weight)
    outputs, start = [], 0
    for stop in cuts:
        part, window = causal_conv(x[start:stop], window, weight)
        outputs.append(part)
        start = stop
    check((mx.concatenate(outputs), window), [np.array(array) for array in whole])


@pytest.mark.parametrize("taps", [1, 2, 4])
def test_a_step_is_a_sequence_of_one_token_for_every_row(taps):
    rows = [inputs(1, taps, seed=row) for row in range(5)]
    weight = rows[0][2]
    x, windows = np.concatenate([row[0] for row in rows]), np.stack([row[1] for row in rows])
    y, new = causal_conv_step(*on_device((x, windows, weight)))
    for row, arrays in enumerate(rows):
        check((y[row : row + 1], new[row]), definition(*arrays[:2], weight))


@pytest.mark.parametrize("dtype", [mx.bfloat16, mx.float16], ids=["bfloat16", "float16"])
def test_half_precision_inputs_are_summed_in_float32_and_kept_as_they_are(dtype):
    x, window, weight = on_device(inputs(9, 4))
    x, window, weight = (array.astype(dtype) for array in (x, window, weight))
    exact = [np.array(array.astype(mx.float32)) for array in (x, window, weight)]
    y, new = causal_conv(x, window, weight)
    assert (y.dtype, new.dtype) == (mx.float32, dtype)
    check((y, new), definition(*exact))
    y, new = causal_conv_step(x[:1], window[None], weight)
    assert (y.dtype, new.dtype) == (mx.float32, dtype)
    check((y, new[0]), definition(exact[0][:1], *exact[1:]))
