"""Converted Qwen models, run by the backend, give the logits of the reference or of the model they were made from."""

import numpy as np
import pytest

from lattice_core.descriptors import Settings
from lattice_core.types import Limits, RowInput, Want
from lattice_mlx.backend import MlxBackend
from tests.gguf import hf_model, qwen_conversion, scalar_blocks

BOUND = 1e-3
PROMPT = tuple(int(token) for token in np.random.default_rng(1).integers(0, 490, 40))


def logits_of(checkpoint, tokens):
    """Of all tokens, float32 [tokens, vocabulary], computed in float32 on the CPU."""
    model = MlxBackend(Settings(own={"device": "cpu"})).load(checkpoint, Limits(dtype="float32"), lambda _done, _total: None)
    state = model.new_state()
    logits = model.forward([RowInput(state, tuple(int(token) for token in tokens), Want.ALL)]).array
    model.launch([logits])
    found = model.read_logits(logits)
    model.release([state])
    return found


def assert_equal_logits(ours, theirs):
    assert np.abs(ours - theirs).max() < BOUND
    assert (ours.argmax(-1) == theirs.argmax(-1)).all()


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("tiny-qwen3-tied-f32", "F32"),
        ("tiny-qwen3-tied-bf16", "BF16"),
        ("tiny-qwen35-tied-f32", "F32"),
        ("tiny-qwen35-tied-bf16", "BF16"),
        ("tiny-qwen35-untied-f32", "F32"),
        ("tiny-qwen35-nested-bf16", "BF16"),
        ("tiny-qwen35moe-untied-f32", "F32"),
        ("tiny-qwen35moe-untied-bf16", "BF16"),
    ],
)
def test_logits_equal_those_of_the_reference(open_converted, name, kind):
    reference = hf_model.references(name)
    checkpoint = open_converted(hf_model.fixture(name), kind)
    assert_equal_logits(logits_of(checkpoint, reference["prompt_ids"]), reference["logits"])
    long = logits_of(checkpoint, reference["long_ids"])
    assert_equal_logits(long[reference["long_positions"]], reference["long_logits"])


@pytest.mark.parametrize("make", [hf_model.qwen2, hf_model.qwen3moe, hf_model.qwen35])
def test_logits_equal_those_of_the_model_that_was_converted(open_converted, make):
    model = make()
    assert_equal_logits(logits_of(open_converted(model), PROMPT), logits_of(model, PROMPT))


def test_a_fused_gate_and_up_gives_the_same_logits(open_converted):
    model = hf_model.qwen3moe()
    fused = {}
    for layer in range(2):
        both = model.tensors_by_name[f"model.layers.{layer}.mlp.experts.gate_up_proj"]
        fused[f"blk.{layer}.ffn_gate_up_exps.weight"] = ("F32", both.shape, both.tobytes())
        fused |= {f"blk.{layer}.ffn_{part}_exps.weight": None for part in ("gate", "up")}
    assert_equal_logits(logits_of(open_converted(model, tensors=fused), PROMPT), logits_of(model, PROMPT))


@pytest.mark.parametrize(("name", "kind"), [("tiny-qwen35-tied-f32", "Q8_0"), ("tiny-qwen35moe-untied-f32", "Q4_1")])
def test_a_quantised_file_gives_the_logits_of_its_weights(open_converted, name, kind):
    """The weights as blocks hold them, in Hugging Face notation and order, run beside the file."""
    model = hf_model.fixture(name)
    rounded = {}
    for tensor_name, tensor in model.tensors_by_name.items():
        in_file = tensor_name.replace("mlp.gate.weight", "ffn_gate_inp.weight")
        stays = "conv1d" in tensor_name or qwen_conversion.stays_float32(in_file, tensor)
        rounded[tensor_name] = tensor if stays else rounded_to(kind, tensor)
    expected = logits_of(hf_model.HfModel(model.config, rounded), PROMPT)
    assert_equal_logits(logits_of(open_converted(model, kind), PROMPT), expected)


def rounded_to(kind, tensor):
    if tensor.shape[-1] % 32:
        return tensor.astype(np.float16).astype(np.float32)
    weights = scalar_blocks.weights(kind, qwen_conversion.ENCODERS[kind](tensor))
    return np.array([float(weight) for weight in weights], np.float32).reshape(tensor.shape)
