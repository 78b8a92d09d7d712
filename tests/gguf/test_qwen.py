"""Qwen models, converted as llama.cpp's converter does it, come back as they were."""

import numpy as np
import pytest
from tokenizers import Tokenizer

from tests.gguf import hf_model, qwen_conversion, scalar_blocks
from tests.gguf.test_blocks import dequantised

FIXTURES = (
    "tiny-qwen3-tied-f32",
    "tiny-qwen3-tied-bf16",
    "tiny-qwen35-tied-f32",
    "tiny-qwen35-tied-bf16",
    "tiny-qwen35-untied-f32",
    "tiny-qwen35-untied-bf16",
    "tiny-qwen35-nested-bf16",
    "tiny-qwen35moe-untied-f32",
    "tiny-qwen35moe-untied-bf16",
)
RANDOM = {"qwen2": hf_model.qwen2, "qwen3moe": hf_model.qwen3moe, "qwen35": hf_model.qwen35}


def model_of(name):
    return RANDOM[name]() if name in RANDOM else hf_model.fixture(name)


def expected_tensors(model):
    """What a loader has to hand out: norms that hold 1 + w, convolutions as [channels, kernel, 1], experts in stacks."""
    tensors = qwen_conversion.stacked(model.tensors_by_name)
    if qwen_conversion.is_qwen35(model.config):
        tensors = {name: expected_of_qwen35(name, tensor) for name, tensor in tensors.items()}
    return {stack_name(name): tensor for name, tensor in tensors.items()}


def expected_of_qwen35(name, tensor):
    if name.endswith("conv1d.weight"):
        return tensor.swapaxes(1, 2)
    return tensor + np.float32(1) if "norm" in name and "linear_attn" not in name else tensor


def stack_name(name):
    if "mlp.experts." not in name:
        return name
    return name.removesuffix(".weight").replace("mlp.experts.", "mlp.switch_mlp.") + ".weight"


def values(tensor):
    """A tensor's values as float32 in its shape."""
    if tensor.spec.dtype == "BF16":
        return (np.frombuffer(tensor.data, "<u2").astype(np.uint32) << 16).view(np.float32).reshape(tensor.spec.shape)
    return dequantised(tensor).astype(np.float32).reshape(tensor.spec.shape)


def assert_holds(checkpoint, expected):
    assert set(checkpoint.tensors()) == set(expected)
    for name, tensor in expected.items():
        read = checkpoint.read(name)
        assert read.spec == checkpoint.tensors()[name]
        assert read.spec.shape == tensor.shape, name
        if name.endswith("A_log"):
            np.testing.assert_allclose(values(read), tensor, rtol=1e-6, atol=1e-6)
        else:
            assert np.array_equal(values(read), tensor), name


@pytest.mark.parametrize("name", [*FIXTURES, *RANDOM])
def test_all_tensors_of_a_float32_file_come_back_exactly(open_converted, name):
    model = model_of(name)
    assert_holds(open_converted(model), expected_tensors(model))


@pytest.mark.parametrize("name", [name for name in FIXTURES if name.endswith("bf16")])
def test_all_tensors_of_a_bfloat16_file_come_back_exactly(open_converted, name):
    model = model_of(name)
    checkpoint = open_converted(model, "BF16")
    assert_holds(checkpoint, expected_tensors(model))
    assert checkpoint.config["torch_dtype"] == "bfloat16"


@pytest.mark.parametrize("name", ["tiny-qwen3-tied-f32", "tiny-qwen35-untied-f32", "tiny-qwen35moe-untied-f32"])
def test_a_float16_file_is_rounded_once(open_converted, name):
    model = model_of(name)
    checkpoint = open_converted(model, "F16")
    for tensor_name, tensor in expected_tensors(model).items():
        read = checkpoint.read(tensor_name)
        if read.spec.dtype == "F16":
            assert np.array_equal(values(read), tensor.astype(np.float16).astype(np.float32)), tensor_name
        else:
            np.testing.assert_allclose(values(read), tensor, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0", "Q4_1"])
@pytest.mark.parametrize("name", ["tiny-qwen3-tied-f32", "qwen35", "tiny-qwen35moe-untied-f32"])
def test_a_quantised_file_holds_the_same_blocks_in_other_places(open_converted, name, kind):
    model = model_of(name)
    checkpoint = open_converted(model, kind)
    packed = 0
    for tensor_name, tensor in expected_tensors(model).items():
        read = checkpoint.read(tensor_name)
        if read.spec.quantization is None:
            continue
        # Blocks of 32 move as a whole, so quantising before or after makes no difference. These rows are of heads that move.
        matrix = tensor.reshape(-1, tensor.shape[-1])
        rows = sorted({0, len(matrix) * 5 // 16, len(matrix) * 21 // 32})
        blocks = qwen_conversion.ENCODERS[kind](matrix[rows])
        expected = [float(weight) for weight in scalar_blocks.weights(kind, blocks)]
        assert dequantised(read).reshape(matrix.shape)[rows].ravel().tolist() == expected, tensor_name
        packed += 1
    assert packed > 10


def test_out_projections_of_every_block_type_get_their_columns_back(open_converted):
    """Value heads of 128: super-blocks of 256 weights hold two of them."""
    model = hf_model.qwen35(value_heads=6, value_dim=128)
    rows, columns, places = 64, 768, qwen_conversion.tiled(2, 3, 128)
    random = np.random.default_rng(6)
    for kind in scalar_blocks.SCALAR:
        elements = 256 if kind.endswith(("_K", "_XS")) else 32
        stored = scalar_blocks.random_blocks(kind, rows * columns // elements, random)
        read = open_converted(model, tensors={"blk.0.ssm_out.weight": (kind, (rows, columns), stored)}).read(
            "model.layers.0.linear_attn.out_proj.weight"
        )
        found = dequantised(read).reshape(rows, columns)
        for row in (0, 63):
            at = len(stored) // rows * row
            in_file = [float(weight) for weight in scalar_blocks.weights(kind, stored[at : at + len(stored) // rows])]
            np.testing.assert_allclose(found[row, places], in_file, rtol=6e-4, atol=1e-6)
            if read.spec.quantization is not None:
                assert found[row, places].tolist() == in_file


def test_nothing_moves_where_every_key_head_serves_one_value_head(open_converted):
    model = hf_model.fixture("tiny-qwen35-tied-f32")
    config = model.config | {"linear_num_key_heads": 4, "linear_key_head_dim": 16}
    checkpoint = open_converted(hf_model.HfModel(config, model.tensors_by_name))
    tensor = checkpoint.read("model.layers.0.linear_attn.out_proj.weight")
    assert np.array_equal(values(tensor), model.tensors_by_name["model.layers.0.linear_attn.out_proj.weight"])
    assert type(tensor.data.obj).__name__ == "mmap"


def test_queries_of_qwen_are_views_of_the_file(open_converted):
    tensor = open_converted(hf_model.fixture("tiny-qwen3-tied-f32")).read("model.layers.1.self_attn.q_proj.weight")
    assert type(tensor.data.obj).__name__ == "mmap"


def test_a_gate_and_up_in_one_tensor_are_handed_out_as_one(open_converted):
    model = hf_model.qwen3moe()
    fused = {}
    for layer in range(2):
        both = model.tensors_by_name[f"model.layers.{layer}.mlp.experts.gate_up_proj"]
        fused[f"blk.{layer}.ffn_gate_up_exps.weight"] = ("F32", both.shape, both.tobytes())
        fused |= {f"blk.{layer}.ffn_{part}_exps.weight": None for part in ("gate", "up")}
    checkpoint = open_converted(model, tensors=fused)
    assert_holds(checkpoint, model.tensors_by_name)


def test_the_gate_of_the_shared_expert_may_be_stored_without_its_dimension_of_one(open_converted):
    model = hf_model.fixture("tiny-qwen35moe-untied-f32")
    name = "model.layers.2.mlp.shared_expert_gate.weight"
    stored = model.tensors_by_name[name]
    checkpoint = open_converted(model, tensors={"blk.2.ffn_gate_inp_shexp.weight": ("F32", (64,), stored.tobytes())})
    assert checkpoint.tensors()[name].shape == (1, 64)
    assert np.array_equal(values(checkpoint.read(name)), stored)


COMMON = {
    "hidden_act": "silu",
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 4096,
    "vocab_size": 512,
    "mlp_bias": False,
    "rope_scaling": None,
    "eos_token_id": 495,
    "pad_token_id": 493,
    "torch_dtype": "float32",
}
TWO_LAYERS = {"num_hidden_layers": 2, "attention_bias": False, "rope_theta": 1e6}
HYBRID = {
    "head_dim": 32,
    "num_hidden_layers": 4,
    "attention_bias": False,
    "rope_theta": 1e7,
    "partial_rotary_factor": 0.25,
    "layer_types": ["linear_attention"] * 3 + ["full_attention"],
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 32,
    "linear_conv_kernel_dim": 4,
    "mtp_num_hidden_layers": 0,
}
EXPERTS = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "norm_topk_prob": True}
CONFIGURATIONS = {
    "qwen2": TWO_LAYERS
    | {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "head_dim": 16,
        "intermediate_size": 96,
        "tie_word_embeddings": False,
        "attention_bias": True,
    },
    "tiny-qwen3-tied-f32": TWO_LAYERS
    | {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "head_dim": 32,
        "intermediate_size": 128,
        "tie_word_embeddings": True,
    },
    "qwen3moe": TWO_LAYERS
    | EXPERTS
    | {
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "head_dim": 16,
        "num_experts": 5,
        "tie_word_embeddings": False,
    },
    "tiny-qwen35-untied-f32": HYBRID
    | {
        "architectures": ["Qwen3_5ForCausalLM"],
        "model_type": "qwen3_5_text",
        "intermediate_size": 128,
        "tie_word_embeddings": False,
        "linear_value_head_dim": 16,
    },
    "tiny-qwen35-nested-bf16": HYBRID
    | {
        "architectures": ["Qwen3_5ForCausalLM"],
        "model_type": "qwen3_5_text",
        "intermediate_size": 128,
        "tie_word_embeddings": True,
        "mtp_num_hidden_layers": 1,
    },
    "tiny-qwen35moe-untied-f32": HYBRID
    | EXPERTS
    | {
        "architectures": ["Qwen3_5MoeForCausalLM"],
        "model_type": "qwen3_5_moe_text",
        "shared_expert_intermediate_size": 48,
        "tie_word_embeddings": False,
    },
}


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_the_configuration_is_in_hugging_face_notation(open_converted, name):
    assert open_converted(model_of(name)).config == COMMON | CONFIGURATIONS[name]


def test_layers_are_of_the_kinds_that_the_file_lists(open_converted):
    """A list wins over the interval, and counts the layer of the prediction head, which attends."""
    model = hf_model.fixture("tiny-qwen35-nested-bf16")
    swapped = {"model.layers.1.": "model.layers.3.", "model.layers.3.": "model.layers.1."}
    tensors = {swapped.get(name[:15], name[:15]) + name[15:]: tensor for name, tensor in model.tensors_by_name.items()}
    model = hf_model.HfModel(model.config, tensors)
    listed = {"qwen35.attention.recurrent_layers": ("[bool]", [True, False, True, True, False])}
    checkpoint = open_converted(model, metadata=listed)
    assert checkpoint.config["layer_types"] == [
        "linear_attention",
        "full_attention",
        "linear_attention",
        "linear_attention",
    ]
    assert_holds(checkpoint, expected_tensors(model))


def test_a_prediction_head_that_is_counted_but_not_there_is_none(open_converted):
    """The converter counts it by the configuration; models are often saved without it."""
    model = hf_model.fixture("tiny-qwen35-tied-f32")
    counted = {"qwen35.nextn_predict_layers": ("u32", 1), "qwen35.block_count": ("u32", 5)}
    assert counted.items() <= qwen_conversion.metadata(model).items()
    checkpoint = open_converted(model)
    assert (checkpoint.config["num_hidden_layers"], checkpoint.config["mtp_num_hidden_layers"]) == (4, 0)
    assert not any(name.startswith("mtp.") for name in checkpoint.tensors())


def test_every_fourth_layer_attends_where_the_file_does_not_say_it(open_converted):
    checkpoint = open_converted(hf_model.fixture("tiny-qwen35-tied-f32"), metadata={"qwen35.full_attention_interval": None})
    assert checkpoint.config["layer_types"] == ["linear_attention"] * 3 + ["full_attention"]


def test_all_dimensions_turn_where_the_file_does_not_count_them(open_converted):
    model = hf_model.fixture("tiny-qwen35-tied-f32")
    assert open_converted(model, metadata={"qwen35.rope.dimension_count": None}).config["partial_rotary_factor"] == 1.0


@pytest.mark.parametrize(("head_dim", "rotary"), [(256, 64), (352, 30), (44, 30), (128, 128)])
def test_the_partial_factor_gives_the_dimensions_back(open_converted, head_dim, rotary):
    model = hf_model.fixture("tiny-qwen35-tied-f32")
    tensors = {}
    for part, shape in {
        "q": (8 * head_dim, 64), "k": (2 * head_dim, 64), "v": (2 * head_dim, 64), "output": (64, 4 * head_dim),
        "q_norm": (head_dim,), "k_norm": (head_dim,),
    }.items():  # fmt: skip
        tensors[f"blk.3.attn_{part}.weight"] = ("F32", shape, bytes(4 * int(np.prod(shape))))
    counts = {"attention.key_length": head_dim, "attention.value_length": head_dim, "rope.dimension_count": rotary}
    metadata = {f"qwen35.{key}": ("u32", count) for key, count in counts.items()}
    config = open_converted(model, metadata=metadata, tensors=tensors).config
    assert int(config["head_dim"] * config["partial_rotary_factor"]) == rotary


def test_frequency_factors_are_those_of_the_dimensions_that_turn(open_converted):
    factors = np.array([1, 2, 4, 8], np.float32)
    stored = {"rope_freqs.weight": ("F32", (4,), factors.tobytes())}
    checkpoint = open_converted(hf_model.fixture("tiny-qwen35-tied-f32"), tensors=stored)
    assert checkpoint.config["rope_freqs"] == factors.tolist()


TEXTS = (
    "Hello, world!",
    "naïve cafe\u0301 1234",
    "  two\n\nlines\t",
    "<|im_start|>user\nHi<|im_end|>\n<think>\n",
    "日本語 العربية",
)


@pytest.mark.parametrize("text", TEXTS)
def test_the_tokenizer_gives_the_ids_of_the_original(open_converted, text):
    model = hf_model.fixture("tiny-qwen35-tied-f32")
    original, rebuilt = (Tokenizer.from_str(source.tokenizer_json.decode()) for source in (model, open_converted(model)))
    ids = original.encode(text).ids
    assert rebuilt.encode(text).ids == ids
    for skip in (True, False):
        assert rebuilt.decode(ids, skip_special_tokens=skip) == original.decode(ids, skip_special_tokens=skip)


def test_template_and_roles_come_from_the_file(open_converted):
    model = hf_model.fixture("tiny-qwen35-tied-f32")
    checkpoint = open_converted(model)
    assert checkpoint.chat_template == model.chat_template
    assert checkpoint.generation_config == {"eos_token_id": 495, "pad_token_id": 493}
    assert checkpoint.tokenizer_config == {
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "add_bos_token": False,
    }
