"""The real file of the demo model."""

import json
import struct
from pathlib import Path

import numpy as np
import pytest

from lattice_core.tokenizer import Tokenizer
from lattice_core.types import AffineQuantization
from lattice_gguf.container import GgufFile
from lattice_gguf.loader import GgufLoader
from tests.gguf import scalar_blocks
from tests.gguf.test_blocks import dequantised

pytestmark = pytest.mark.model

REFERENCE = json.loads((Path(__file__).parents[1] / "data" / "smollm2-greedy.json").read_text(encoding="utf-8"))
SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"


@pytest.fixture(scope="module")
def checkpoint(smollm2_path):
    return GgufLoader(None).open(smollm2_path.parent)


@pytest.fixture(scope="module")
def tokenizer(checkpoint):
    return Tokenizer.from_checkpoint(checkpoint)


def test_configuration(checkpoint):
    assert checkpoint.config == {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "head_dim": 64,
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": 8192,
        "vocab_size": 49152,
        "tie_word_embeddings": True,
        "attention_bias": False,
        "mlp_bias": False,
        "rope_theta": 100000.0,
        "rope_scaling": None,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 2,
        "torch_dtype": "float16",
    }
    assert checkpoint.format == "gguf Q4_1"
    assert checkpoint.nbytes == 96_576_768


def test_tensors(checkpoint):
    specs = checkpoint.tensors()
    assert len(specs) == 272
    embedding, query = specs["model.embed_tokens.weight"], specs["model.layers.29.self_attn.q_proj.weight"]
    assert (embedding.shape, embedding.quantization) == ((49152, 576), AffineQuantization(8, 32, "F16"))
    assert (query.shape, query.quantization) == ((576, 576), AffineQuantization(4, 32, "F16"))
    assert (specs["model.norm.weight"].dtype, specs["model.norm.weight"].shape) == ("F32", (576,))


def test_all_tensors_can_be_read(checkpoint):
    for name, promised in checkpoint.tensors().items():
        tensor = checkpoint.read(name)
        elements = int(np.prod(promised.shape))
        assert tensor.spec == promised
        if promised.quantization is None:
            assert len(tensor.data) == 4 * elements
        else:
            assert len(tensor.data) == elements * promised.quantization.bits // 8
            assert len(tensor.scales) == len(tensor.biases) == elements // 32 * 2


def stored(smollm2_path, name, rows):
    """The type and the stored bytes of some rows, found without the loader's way from bytes to tensors."""
    file = GgufFile(smollm2_path)
    info = file.tensors[name]
    row = info.nbytes // info.shape[0]
    data = bytes(file.read(info))
    return info.type.name, b"".join(data[at * row : at * row + row] for at in rows)


@pytest.mark.parametrize(
    ("gguf", "name"),
    [
        ("token_embd.weight", "model.embed_tokens.weight"),
        ("blk.0.attn_v.weight", "model.layers.0.self_attn.v_proj.weight"),
        ("blk.17.ffn_down.weight", "model.layers.17.mlp.down_proj.weight"),
    ],
)
def test_weights_equal_the_scalar_dequantisation(smollm2_path, checkpoint, gguf, name):
    kind, blocks = stored(smollm2_path, gguf, range(3))
    expected = [float(weight) for weight in scalar_blocks.weights(kind, blocks)]
    assert dequantised(checkpoint.read(name), len(expected)).tolist() == expected


@pytest.mark.parametrize("part", ["q", "k"])
def test_rows_of_queries_and_keys_come_back_in_halves(smollm2_path, checkpoint, part):
    rows = [0, 2, 4, 1, 3]
    kind, blocks = stored(smollm2_path, f"blk.3.attn_{part}.weight", [64 + row for row in rows])
    expected = np.array([float(weight) for weight in scalar_blocks.weights(kind, blocks)]).reshape(5, 576)
    weights = dequantised(checkpoint.read(f"model.layers.3.self_attn.{part}_proj.weight")).reshape(-1, 576)
    assert np.array_equal(weights[[64, 65, 66, 96, 97]], expected)


def test_a_norm_is_a_view_of_the_file(smollm2_path, checkpoint):
    data = checkpoint.read("model.norm.weight").data
    assert type(data.obj).__name__ == "mmap"
    assert struct.unpack("<576f", data) == struct.unpack("<576f", stored(smollm2_path, "output_norm.weight", range(576))[1])


@pytest.mark.parametrize("case", REFERENCE["cases"], ids=lambda case: case["user"][:30])
def test_prompts_have_the_ids_of_the_reference(tokenizer, case):
    turns = [("system", SYSTEM), ("user", case["user"])]
    text = "".join(f"<|im_start|>{role}\n{content}<|im_end|>\n" for role, content in turns) + "<|im_start|>assistant\n"
    assert list(tokenizer.encode(text, control=True)) == case["prompt_ids"]


@pytest.mark.parametrize("case", REFERENCE["cases"], ids=lambda case: case["user"][:30])
def test_answers_have_the_text_of_the_reference(tokenizer, case):
    assert tokenizer.decode(case["greedy_ids"]) == case["greedy_text"]


def test_any_text_survives_the_round_trip(tokenizer):
    random = np.random.default_rng(9)
    ranges = [(32, 127), (9, 14), (48, 58), (128, 0x250), (0x400, 0x2000), (0x4E00, 0x9FFF), (0x1F300, 0x1FAFF)]
    for _ in range(500):
        chosen = [ranges[place] for place in random.integers(0, len(ranges), 30)]
        text = "".join(chr(random.integers(low, high)) for low, high in chosen)
        assert tokenizer.decode(tokenizer.encode(text, control=False)) == text


def test_special_tokens_and_the_template(checkpoint, tokenizer):
    assert checkpoint.tokenizer_config == {
        "bos_token": "<|im_start|>",
        "eos_token": "<|im_end|>",
        "unk_token": "<|endoftext|>",
        "pad_token": "<|im_end|>",
        "add_bos_token": False,
    }
    assert (tokenizer.size, tokenizer.eos_ids, len(tokenizer.special_ids)) == (49152, {2}, 17)
    assert f"<|im_start|>system\n{SYSTEM}<|im_end|>\n" in checkpoint.chat_template.replace("\\n", "\n")
