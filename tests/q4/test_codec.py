"""The codec: worked examples byte for byte, the encoder's rules at their edges, and what it refuses."""

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from lattice_q4 import khq4
from tests.q4.plain_decoder import decoded_file


def quarters(count, offset):
    index = np.arange(count)
    return ((37 * index + offset) % 200 - 100).astype(np.float32) / np.float32(4)


def block(values, *, symmetric=False):
    """Scale, bias and the 32 codes of one block."""
    data = khq4.encode_blocks(np.asarray(values), symmetric=symmetric)
    assert len(data) == 20
    codes = [code for byte in data[4:] for code in (byte & 15, byte >> 4)]
    return (*struct.unpack_from("<ee", data), codes)


def test_one_row_as_the_reference_writes_it():
    expected = "4b485134 02000000 02000000 0100000000000000 2000000000000000 2000000000000000"
    expected += "6f42 10ce 52a81d63c92f85eb41a70d63c92e75da"
    assert khq4.encode(quarters(32, 26).reshape(1, 32)) == bytes.fromhex(expected)


def test_rows_that_blocks_straddle_as_the_reference_writes_them():
    expected = "4b485134 02000000 02000000 0200000000000000 2100000000000000 4200000000000000"
    expected += "6f42 f0cd 3196fc52b81e74da3096ec52a71d63c9"
    expected += "6f42 00ce 2f85eb41a70d63c92e75da3196fc52b8"
    expected += "6f41 20cd 0f888888888888888888888888888888"
    assert khq4.encode(quarters(66, 13).reshape(2, 33)) == bytes.fromhex(expected)


def test_a_ramp_as_the_reference_writes_it():
    ramp = (np.arange(32) / 10).astype(np.float32)
    assert khq4.encode_blocks(ramp) == bytes.fromhex("9d32 0000 00112233445566778899aabbccddeeff")


def test_a_symmetric_ramp_as_the_reference_writes_it():
    ramp = np.arange(32) / 10 - 1.5
    codes = [1, 2, 2, 3, 3, 4, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 8, 9, 9, 10, 10, 11, 11, 11, 12, 12, 13, 13, 14, 14, 15, 15]
    assert khq4.encode_blocks(ramp, symmetric=True)[:4] == bytes.fromhex("5033 50bf")
    assert block(ramp, symmetric=True)[2] == codes
    # As float32 the value 0.8 is just half a step above a code, and no longer a little less.
    assert block(ramp.astype(np.float32), symmetric=True)[2] == [*codes[:23], 12, *codes[24:]]


def test_a_half_file_holds_header_and_halves():
    expected = "4b484631 01000000 02000000 0100000000000000 0300000000000000 0300000000000000"
    expected += "003c 00c0 0100"
    assert khq4.f16_file(np.array([[1.0, -2.0, 2.0**-24]])) == bytes.fromhex(expected)


@pytest.mark.parametrize("value", [0.0, 1.5, -3.0, 60000.0])
def test_a_constant_block_has_the_scale_one(value):
    assert block([value] * 32) == (1.0, value, [0] * 32)


def test_a_range_whose_scale_a_half_holds_as_zero_has_the_scale_one():
    assert block([0.0, 15 * 2.0**-26] * 16) == (1.0, 0.0, [0] * 32)
    assert block([0.0, 15 * 2.0**-24] * 16) == (2.0**-24, 0.0, [0, 15] * 16)


def test_a_symmetric_block_of_zeros_is_decoded_as_zeros():
    scale, bias, codes = block([0.0] * 32, symmetric=True)
    assert (scale, bias, codes) == (1.0, -8.0, [8] * 32)


def test_halves_are_rounded_away_from_zero():
    # The scale is exactly 1, so the codes are the rounded values.
    values = [0.0, 15.0, 0.5, 1.5, 2.5, 3.5, 14.5, float(np.nextafter(np.float32(0.5), np.float32(0)))]
    assert block(values * 4)[2][:8] == [0, 15, 1, 2, 3, 4, 15, 0]
    assert block([7.0, -0.5, -1.5, 0.5] * 8, symmetric=True)[2][:4] == [15, 7, 6, 9]


def test_codes_come_from_the_scale_and_minimum_before_they_are_rounded_to_half():
    # A half holds 2049 as 2048: from that minimum the second value would be one step higher.
    scale, bias, codes = block([2049.0, 2049.0 + 1.49] + [2049.0 + 15.0] * 30)
    assert (scale, bias, codes) == (1.0, 2048.0, [0, 1] + [15] * 30)


def test_places_after_the_last_value_hold_the_code_of_zero_and_do_not_count_for_the_range():
    assert block([100.0, 115.0]) == (1.0, 100.0, [0, 15] + [0] * 30)
    assert block([-5.0, 10.0]) == (1.0, -5.0, [0, 15] + [5] * 30)
    assert block([-30.0, -15.0]) == (1.0, -30.0, [0, 15] + [15] * 30)
    assert block([7.0], symmetric=True) == (1.0, -8.0, [15] + [8] * 31)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("write", [khq4.encode, khq4.f16_file])
def test_values_that_are_not_finite_are_refused(write, value):
    values = np.zeros(100, np.float32)
    values[70] = value
    with pytest.raises(ValueError, match=f"value 70 is {value}, which is not finite"):
        write(values)


@pytest.mark.parametrize("symmetric", [False, True])
def test_a_bias_beyond_half_is_refused(symmetric):
    values = np.zeros(96, np.float32)
    values[40] = -70000.0
    with pytest.raises(ValueError, match=r"block 1 needs the scale .* of which a half holds at most 65504"):
        khq4.encode(values, symmetric=symmetric)


def test_what_is_refused_is_counted_from_the_begin_of_the_values():
    values = np.zeros(32 * 40001 + 1, np.float32)
    values[32 * 40000 + 3] = 1e6
    with pytest.raises(ValueError, match="block 40000 needs the scale 66666"):
        khq4.encode(values)
    values[32 * 40000 + 3] = np.nan
    with pytest.raises(ValueError, match="value 1280003 is nan"):
        khq4.encode(values)
    values[32 * 40000 + 3] = 0
    values[-1] = np.inf
    with pytest.raises(ValueError, match="value 1280032 is inf"):
        khq4.encode(values)


def test_a_range_beyond_float32_is_refused():
    with pytest.raises(ValueError, match="block 0 needs the scale inf"):
        khq4.encode(np.array([3e38, -3e38], np.float32))


def test_a_half_value_beyond_half_is_refused():
    assert khq4.f16_file(np.array([65519.0]))[-2:] == bytes.fromhex("ff7b")
    with pytest.raises(ValueError, match=r"value 1 is 65520.0, beyond the 65504 that a half can hold"):
        khq4.f16_file(np.array([1.0, 65520.0]))


def test_a_shape_beyond_the_header_is_refused():
    assert len(khq4.header((1 << 31, 1 << 31))) == 36
    with pytest.raises(ValueError, match="is impossible"):
        khq4.header((1 << 32, 1 << 31))


def test_pieces_of_whole_blocks_are_the_whole():
    values = np.random.default_rng(0).standard_normal(32 * 3 * (1 << 15) + 50).astype(np.float32)
    pieces = [values[: 32 * 7], values[32 * 7 : 32 * 40000], values[32 * 40000 :]]
    whole = khq4.encode(values)
    assert khq4.header(values.shape) + b"".join(khq4.encode_blocks(piece) for piece in pieces) == whole


@given(
    arrays.arrays(
        np.float32,
        arrays.array_shapes(min_dims=1, max_dims=4, max_side=40),
        elements=st.floats(-1000, 1000, width=32),
    ),
    st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_decoded_values_are_within_half_a_step_of_their_originals(values, symmetric):
    shape, found = decoded_file(khq4.encode(values, symmetric=symmetric))
    assert shape == values.shape
    flat, decoded = values.reshape(-1).astype(np.float64), found.reshape(-1)
    for start in range(0, flat.size, 32):
        part = flat[start : start + 32]
        step = np.abs(part).max() / 7 if symmetric else (part.max() - part.min()) / 15
        # Stored scales and biases are rounded to 11 bits; a scale that a half cannot hold becomes 1, with codes of zero.
        bound = step / 2 + np.abs(part).max() * 2.0**-9 + 2.0**-21
        assert np.abs(decoded[start : start + 32] - part).max() <= bound


def test_files_are_named_after_tensors():
    name = "model.language_model.layers.3.self_attn.q_proj.weight"
    assert khq4.mangled(name) == "model_language_model_layers_3_self_attn_q_proj_weight"
    assert khq4.mangled("a-b/c d.A_log") == "a-b_c_d_A_log"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("model.layers.0.self_attn.q_proj.weight", True),
        ("model.layers.0.linear_attn.in_proj_qkv.weight", True),
        ("model.layers.0.linear_attn.in_proj_a.weight", True),
        ("model.layers.0.mlp.gate.weight", True),
        ("model.layers.0.mlp.shared_expert_gate.weight", True),
        ("model.layers.0.mlp.experts.gate_up_proj", True),
        ("model.layers.0.mlp.experts.down_proj", True),
        ("model.layers.0.mlp.experts.7.down_proj.weight", True),
        ("model.embed_tokens.weight", True),
        ("lm_head.weight", True),
        ("mtp.fc.weight", True),
        ("model.norm.weight", False),
        ("model.layers.0.self_attn.k_norm.weight", False),
        ("model.layers.0.input_layernorm.weight", False),
        ("mtp.pre_fc_norm_embedding.weight", False),
        ("model.layers.0.self_attn.q_proj.bias", False),
        ("model.layers.0.linear_attn.A_log", False),
        ("model.layers.0.linear_attn.dt_bias", False),
        ("model.layers.0.linear_attn.conv1d.weight", False),
        ("model.layers.0.self_attn.rotary_emb.inv_freq", None),
        ("model.layers.0.mlp.down_proj", None),
    ],
)
def test_the_name_of_a_tensor_decides_its_format(name, expected):
    assert khq4.is_quantised(name) is expected
