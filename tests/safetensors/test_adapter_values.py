"""The bytes of matrices: finite numbers told from others, and transposition, against numpy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lattice_safetensors.adapter_values import first_not_finite, transposed

WORDS = {"F32": "<u4", "F16": "<u2", "BF16": "<u2"}


def as_floats(words, dtype):
    if dtype == "BF16":
        return (words.astype("<u4") << 16).view("<f4")
    return words.view({"F32": "<f4", "F16": "<f2"}[dtype])


@pytest.mark.parametrize("dtype", ["F16", "BF16"])
def test_every_half_word_is_judged_as_numpy_judges_it(dtype):
    words = np.arange(1 << 16, dtype="<u2")
    expected = np.isfinite(as_floats(words, dtype)).tolist()
    assert [first_not_finite(memoryview(word.tobytes()), dtype) is None for word in words] == expected


@pytest.mark.parametrize("sign", [0, 1])
@pytest.mark.parametrize("mantissa", [0, 1, 0x7FFFFF, 0x400000])
def test_every_exponent_of_float32_is_judged_as_numpy_judges_it(sign, mantissa):
    words = np.array([sign << 31 | exponent << 23 | mantissa for exponent in range(256)], "<u4")
    expected = np.isfinite(as_floats(words, "F32")).tolist()
    assert [first_not_finite(memoryview(word.tobytes()), "F32") is None for word in words] == expected


@settings(deadline=None)
@given(dtype=st.sampled_from(list(WORDS)), data=st.data())
def test_the_first_element_that_is_not_finite_is_found(dtype, data):
    width = np.dtype(WORDS[dtype]).itemsize
    stored = np.frombuffer(data.draw(st.binary(max_size=40)).ljust(width, b"\x7f")[: 40 // width * width], "u1")
    words = np.frombuffer(stored[: len(stored) // width * width].tobytes(), WORDS[dtype])
    bad = np.flatnonzero(~np.isfinite(as_floats(words, dtype)))
    assert first_not_finite(memoryview(words.tobytes()), dtype) == (bad[0] if len(bad) else None)


@pytest.mark.parametrize("dtype", list(WORDS))
def test_an_element_far_into_the_data_is_found(dtype):
    words = np.zeros(1_500_000, WORDS[dtype])
    for place in (1_499_999, 1_100_000, 524_288, 262_143):
        words[place] = np.iinfo(WORDS[dtype]).max
        assert first_not_finite(memoryview(words.tobytes()), dtype) == place


@pytest.mark.parametrize("dtype", list(WORDS))
@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (7, 1), (3, 5), (64, 33)])
def test_a_matrix_is_transposed(dtype, shape):
    words = np.random.default_rng(3).integers(0, 60_000, shape).astype(WORDS[dtype])
    turned = transposed(memoryview(words.tobytes()), dtype, shape)
    assert turned.readonly
    np.testing.assert_array_equal(np.frombuffer(turned, WORDS[dtype]).reshape(shape[::-1]), words.T)
