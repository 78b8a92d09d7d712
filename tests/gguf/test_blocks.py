"""Every block type against the scalar dequantisers, through the loader."""

import struct

import numpy as np
import pytest

from lattice_core.errors import ModelError
from lattice_core.types import AffineQuantization
from lattice_gguf.affine import AFFINE_TYPES
from lattice_gguf.expand import EXPANDED_TYPES
from tests.gguf import scalar_blocks, tiny_llama

NAME, GGUF_NAME = "model.layers.0.mlp.down_proj.weight", "blk.0.ffn_down.weight"
DTYPES = {"F16": np.float16, "F32": np.float32}


def words_to_quants(data, bits):
    """The integers in packed words, by the rule of ``AffineQuantization``."""
    words = struct.unpack(f"<{len(data) // 4}I", data)
    return [word >> bits * place & (1 << bits) - 1 for word in words for place in range(32 // bits)]


def dequantised(tensor, count=None):
    """The first ``count`` weights of a tensor (default all) as float64, quantised ones by ``q * scale + bias``."""
    quantization = tensor.spec.quantization
    if quantization is None:
        return np.frombuffer(tensor.data, DTYPES[tensor.spec.dtype])[:count].astype(np.float64)
    data = tensor.data if count is None else tensor.data[: count * quantization.bits // 8]
    quants = np.array(words_to_quants(data, quantization.bits), np.float64).reshape(-1, quantization.group_size)
    dtype = DTYPES[quantization.scale_dtype]
    scales, biases = (
        np.frombuffer(part, dtype)[: len(quants)].astype(np.float64)[:, None] for part in (tensor.scales, tensor.biases)
    )
    return (quants * scales + biases).ravel()


@pytest.fixture
def read_down_proj(open_model):
    """Reads layer 0's down projection, stored as given; 256 columns make a block of any type."""

    def read(kind, stored):
        sizes = {"llama__feed_forward_length": ("u32", 256)}
        shapes = {
            name: tuple(256 if size == tiny_llama.INNER else size for size in shape)
            for name, shape in tiny_llama.shapes().items()
        }
        tensors = {name: ("F32", shape, bytes(4 * int(np.prod(shape)))) for name, shape in shapes.items()}
        tensors[GGUF_NAME] = (kind, shapes[GGUF_NAME], stored)
        checkpoint = open_model(tiny_llama.metadata(**sizes), tensors)
        return checkpoint.tensors()[NAME], checkpoint.read(NAME)

    return read


def blocks_of_down_proj(kind, seed=1):
    per_block = 32 if kind in {"Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "IQ4_NL"} else 256
    return scalar_blocks.random_blocks(kind, tiny_llama.HIDDEN * 256 // per_block, np.random.default_rng(seed))


def test_every_type_is_tested():
    assert set(scalar_blocks.SCALAR) == set(AFFINE_TYPES) | set(EXPANDED_TYPES)


@pytest.mark.parametrize("kind", sorted(AFFINE_TYPES))
def test_affine_types_are_repacked_without_loss(kind, read_down_proj):
    stored = blocks_of_down_proj(kind)
    promised, tensor = read_down_proj(kind, stored)
    expected = [float(weight) for weight in scalar_blocks.weights(kind, stored)]
    affine = AFFINE_TYPES[kind]
    assert tensor.spec == promised
    assert (promised.dtype, promised.shape) == ("U32", (tiny_llama.HIDDEN, 256))
    assert promised.quantization == AffineQuantization(affine.bits, 32, affine.scale_dtype)
    # Doubles hold every product and sum of these types exactly, so equal means lossless.
    assert dequantised(tensor).tolist() == expected


@pytest.mark.parametrize("kind", sorted(EXPANDED_TYPES))
def test_expanded_types_are_rounded_once_to_half_precision(kind, read_down_proj):
    stored = blocks_of_down_proj(kind)
    promised, tensor = read_down_proj(kind, stored)
    expected = np.array([float(weight) for weight in scalar_blocks.weights(kind, stored)])
    assert tensor.spec == promised
    assert (promised.dtype, promised.shape, promised.quantization) == ("F16", (tiny_llama.HIDDEN, 256), None)
    # Rounding to float32 first may move a weight that lies between two halves by one unit in the last place.
    unit = np.spacing(np.abs(expected).astype(np.float16)).astype(np.float64)
    assert np.all(np.abs(dequantised(tensor) - expected) <= 0.5005 * unit)


def with_scale(kind, scale):
    """Blocks of the tensor whose half-precision numbers are all ``scale``."""
    stored = bytearray(blocks_of_down_proj(kind))
    _, nbytes, halves = scalar_blocks.SCALAR[kind]
    for at in range(0, len(stored), nbytes):
        for place in halves:
            struct.pack_into("<e", stored, at + place, scale)
    return bytes(stored)


@pytest.mark.parametrize(("kind", "scale"), [("Q4_0", 9000.0), ("Q5_0", -5000.0), ("Q8_0", 600.0), ("IQ4_NL", -600.0)])
def test_a_bias_beyond_half_precision_widens_the_scales(kind, scale, read_down_proj):
    stored = with_scale(kind, scale)
    _, tensor = read_down_proj(kind, stored)
    assert tensor.spec.quantization.scale_dtype == "F32"
    assert dequantised(tensor).tolist() == [float(weight) for weight in scalar_blocks.weights(kind, stored)]


@pytest.mark.parametrize("kind", ["Q4_0", "Q5_0", "Q8_0", "IQ4_NL"])
def test_the_smallest_half_precision_scale_loses_nothing(kind, read_down_proj):
    stored = with_scale(kind, 2.0**-24)
    promised, tensor = read_down_proj(kind, stored)
    assert tensor.spec == promised
    assert dequantised(tensor).tolist() == [float(weight) for weight in scalar_blocks.weights(kind, stored)]


@pytest.mark.parametrize("kind", sorted(EXPANDED_TYPES))
def test_weights_beyond_half_precision_are_expanded_to_float32(kind, read_down_proj):
    stored = with_scale(kind, 30000.0)
    _, tensor = read_down_proj(kind, stored)
    assert tensor.spec.dtype == "F32"
    assert dequantised(tensor).tolist() == [float(np.float32(weight)) for weight in scalar_blocks.weights(kind, stored)]


@pytest.mark.parametrize("scale", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("kind", sorted(scalar_blocks.SCALAR))
def test_scales_that_are_not_finite_are_one_clear_error(kind, scale, read_down_proj):
    with pytest.raises(ModelError, match=rf"tensor 'blk.0.ffn_down.weight' has {kind} scales that are not finite"):
        read_down_proj(kind, with_scale(kind, scale))


def test_expanded_and_widened_tensors_are_logged_once_for_a_file(caplog, read_down_proj):
    caplog.set_level("INFO", "lattice.gguf")
    read_down_proj("Q6_K", blocks_of_down_proj("Q6_K"))
    read_down_proj("Q5_0", blocks_of_down_proj("Q5_0"))
    read_down_proj("Q8_0", blocks_of_down_proj("Q8_0"))
    messages = [record.getMessage().partition("read: ")[2] for record in caplog.records]
    assert messages == ["1 Q6_K to F16", "1 Q5_0 to 8 bits"]
