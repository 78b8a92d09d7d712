"""The operations themselves: accuracy, and that plain and fused forms agree."""

import math

import mlx.core as mx
import numpy as np
import pytest

from lattice_core.errors import ModelError
from lattice_mlx import kernels
from lattice_mlx.activation import LARGE, exp, softmax, softmax_on_cpu, swiglu, swiglu_on_cpu
from lattice_mlx.attention import FusedAttention, PlainAttention, visible
from lattice_mlx.config_fields import ConfigFields
from lattice_mlx.kernels import HeadGeometry, checked_attention, checked_rope
from lattice_mlx.rope import FusedRoPE, PlainRoPE
from lattice_mlx.rope_frequencies import rope_frequencies
from lattice_mlx.target import Target
from lattice_mlx.token_mask import masked


def test_exp_is_accurate_over_its_whole_range():
    x = np.linspace(-80, 80, 400_001, dtype=np.float32)
    relative = np.abs(np.array(exp(mx.array(x))).astype(np.float64) / np.exp(x.astype(np.float64)) - 1)
    print(f"relative error {relative[np.abs(x) <= 30].max():.2e} up to 30, {relative.max():.2e} up to 80")
    assert relative[np.abs(x) <= 30].max() < 2e-6
    assert relative.max() < 5e-6


def test_swiglu_of_large_arrays_equals_the_plain_formula():
    gate = np.concatenate([np.linspace(-30, 30, LARGE), np.array([-1e4, -200, -90, 0, 90, 200, 1e4])]).astype(np.float32)
    up = np.linspace(-2, 3, gate.size).astype(np.float32)
    ours = np.array(swiglu_on_cpu(mx.array(gate), mx.array(up))).astype(np.float64)
    sigmoid = np.where(gate < -80, 0.0, 1 / (1 + np.exp(-np.maximum(gate.astype(np.float64), -700))))
    expected = gate.astype(np.float64) * sigmoid * up
    np.testing.assert_allclose(ours, expected, rtol=2e-6, atol=1e-25)
    assert np.isfinite(ours).all()


@pytest.mark.parametrize("spread", [1.0, 30.0, 500.0])
def test_softmax_of_large_arrays_equals_the_plain_formula(spread):
    x = (np.random.default_rng(0).normal(size=(4, 3, LARGE // 8)) * spread).astype(np.float32)
    x[:, :, 100:150] = -np.inf
    x[:, :, 0] = 0.0
    ours = np.array(softmax_on_cpu(mx.array(x)))
    weights = np.exp(x.astype(np.float64) - x.max(axis=-1, keepdims=True))
    expected = weights / weights.sum(axis=-1, keepdims=True)
    # MLX's own softmax is off by 3e-6 here as well: both sum in float32, one element after another.
    np.testing.assert_allclose(ours, expected, rtol=5e-6, atol=1e-12)
    np.testing.assert_allclose(ours, np.array(softmax(mx.array(x))), rtol=5e-6, atol=1e-12)


def test_small_arrays_and_other_dtypes_take_the_plain_operations():
    small = mx.random.normal((8, 64))
    assert mx.array_equal(softmax_on_cpu(small), softmax(small))
    assert mx.array_equal(swiglu_on_cpu(small, small), swiglu(small, small))
    half = mx.random.normal((2, LARGE)).astype(mx.bfloat16)
    assert softmax_on_cpu(half).dtype == mx.bfloat16
    assert mx.array_equal(swiglu_on_cpu(half, half), swiglu(half, half))


def largest_difference(a, b):
    return float(np.abs(np.array(a.astype(mx.float32)) - np.array(b.astype(mx.float32))).max())


@pytest.mark.parametrize("length", [1, 37, 700])
@pytest.mark.parametrize(("heads", "kv_heads"), [(6, 2), (4, 4), (8, 1)])
def test_plain_decode_attention_equals_the_fused_kernel(length, heads, kv_heads):
    q, kv = mx.random.normal((3, heads, 16)), mx.random.normal((3, 2 * kv_heads, length, 16))
    k, v = kv[:, :kv_heads], kv[:, kv_heads:]
    for seen in (None, visible(mx.array([0, length // 2, length - 1]), length)):
        plain, fused = (form.decode(q, k, v, seen) for form in (PlainAttention(softmax_on_cpu), FusedAttention()))
        assert plain.shape == (3, heads, 16)
        assert largest_difference(plain, fused) < 1e-5


@pytest.mark.parametrize(("tokens", "length"), [(1, 1), (5, 5), (300, 300), (130, 1000), (40, 41)])
def test_plain_causal_attention_equals_the_fused_kernel(tokens, length):
    q, kv = mx.random.normal((tokens, 6, 16)), mx.random.normal((4, length, 16))
    plain, fused = (form.causal(q, kv[:2], kv[2:]) for form in (PlainAttention(softmax_on_cpu), FusedAttention()))
    assert plain.shape == (tokens, 6, 16)
    assert largest_difference(plain, fused) < 1e-5


def test_plain_rotation_equals_the_fused_kernel():
    frequencies = (500.0 ** (-np.arange(8) / 8)).astype(np.float32)
    x, positions = mx.random.normal((5, 3, 16)), mx.array([0, 1, 900, 4, 77])
    plain, fused = PlainRoPE(frequencies).at(positions)(x), FusedRoPE(frequencies).at(positions)(x)
    assert largest_difference(plain, fused) < 1e-3


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_fused_kernels_that_agree_are_used(dtype):
    target, geometry = Target("cpu", dtype), HeadGeometry(6, 2, 16)
    frequencies = (500.0 ** (-np.arange(8) / 8)).astype(np.float32)
    assert isinstance(checked_rope(target, geometry, frequencies), FusedRoPE)
    assert isinstance(checked_attention(target, geometry), FusedAttention)


@pytest.mark.parametrize("fault", ["wrong", "nan", "raises"])
def test_fused_kernels_that_do_not_agree_are_replaced_and_said_so(fault, monkeypatch, caplog):
    class Broken(FusedAttention):
        def decode(self, q, k, v, seen):
            if fault == "raises":
                raise RuntimeError("no such kernel")
            return super().decode(q, k, v, None) if fault == "wrong" else q * math.nan

    monkeypatch.setattr(kernels, "FusedAttention", Broken)
    chosen = checked_attention(Target("cpu", "float32"), HeadGeometry(6, 2, 16))
    assert isinstance(chosen, PlainAttention)
    assert "decode attention" in caplog.text
    assert "using plain operations" in caplog.text


def frequencies_of(head_dim=8, **config):
    return rope_frequencies(ConfigFields(config), head_dim)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"rope_theta": 0}, r"config.rope_theta is 0: expected a finite number above 0"),
        ({"rope_theta": math.inf}, r"config.rope_theta is inf"),
        ({"rope_parameters": {"rope_theta": "x"}}, r"config.rope_parameters.rope_theta is 'x'"),
        ({"rope_parameters": [1]}, r"config.rope_parameters is \[1\]: expected a mapping"),
        ({"rope_scaling": {"type": "yarn", "factor": 2.0}}, r"rope_scaling.type is 'yarn': this backend knows default, linear"),
        ({"rope_scaling": {"rope_type": "dynamic"}}, r"rope_scaling.rope_type is 'dynamic'"),
        ({"rope_scaling": {"rope_type": "linear"}}, r"rope_scaling.factor is missing"),
        (
            {
                "rope_scaling": {
                    "rope_type": "llama3",
                    "factor": 8.0,
                    "low_freq_factor": 4.0,
                    "high_freq_factor": 4.0,
                    "original_max_position_embeddings": 8192,
                }
            },
            r"high_freq_factor is 4.0: expected more than low_freq_factor, 4.0",
        ),
        ({"partial_rotary_factor": 0.5}, r"partial_rotary_factor is 0.5: this architecture rotates whole heads"),
        ({"rope_freqs": [1.0]}, r"rope_freqs is \[1.0\]: expected a list of 4 finite numbers above 0"),
        ({"rope_freqs": [1.0, 1.0, 0.0, 1.0]}, r"rope_freqs"),
        ({"rope_freqs": ["a", "b", "c", "d"]}, r"rope_freqs"),
    ],
)
def test_rope_settings_that_cannot_be_honoured_are_refused(config, message):
    with pytest.raises(ModelError, match=message):
        frequencies_of(**config)


def test_llama3_scaling_keeps_fast_pairs_and_slows_long_ones():
    scaling = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
    plain = frequencies_of(64, rope_theta=10000.0)
    scaled = frequencies_of(64, rope_theta=10000.0, rope_scaling={"rope_type": "llama3", **scaling})
    np.testing.assert_array_equal(scaled[0], plain[0])
    np.testing.assert_allclose(scaled[-1], plain[-1] / 8, rtol=1e-6)
    assert (np.diff(scaled / plain) <= 1e-6).all()


def test_a_mask_blocks_exactly_the_bits_that_are_zero():
    rng = np.random.default_rng(0)
    allowed = rng.random((3, 70)) < 0.5
    bits = np.zeros((3, 96), dtype=bool)
    bits[:, :70] = allowed
    packed = np.packbits(bits, axis=1, bitorder="little").view(np.uint32)
    logits = mx.random.normal((3, 70))
    result = np.array(masked(logits, packed))
    np.testing.assert_array_equal(result, np.where(allowed, np.array(logits), -np.inf))


@pytest.mark.parametrize("packed", [np.zeros((2, 3), np.uint32), np.zeros((3, 2), np.uint32), np.zeros((3, 3), np.int64)])
def test_a_mask_of_another_shape_is_refused(packed):
    with pytest.raises(ValueError, match=r"expected uint32 \[3, 3\]"):
        masked(mx.zeros((3, 70)), packed)
