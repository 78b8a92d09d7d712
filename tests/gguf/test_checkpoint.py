"""From a file to a checkpoint: configuration, names, row order, views, and models that do not fit together."""

import numpy as np
import pytest

from lattice_core.errors import ModelError
from lattice_core.types import TensorSpec
from tests.gguf import gguf_writer, scalar_blocks, tiny_llama

HIDDEN = tiny_llama.HIDDEN


def test_the_configuration_is_in_hugging_face_notation(open_model):
    assert open_model().config == {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": 512,
        "vocab_size": 272,
        "tie_word_embeddings": True,
        "attention_bias": False,
        "mlp_bias": False,
        "rope_theta": 50000.0,
        "rope_scaling": None,
        "bos_token_id": 1,
        "eos_token_id": 0,
        "torch_dtype": "float32",
    }


def test_optional_keys_have_the_defaults_of_the_format(open_model):
    metadata = tiny_llama.metadata(llama__rope__freq_base=None, llama__attention__head_count_kv=None)
    tensors = tiny_llama.tensors()
    for layer in range(tiny_llama.LAYERS):
        for part in "kv":
            tensors[f"blk.{layer}.attn_{part}.weight"] = ("F32", (HIDDEN, HIDDEN), bytes(4 * HIDDEN * HIDDEN))
    config = open_model(metadata, tensors).config
    assert (config["rope_theta"], config["num_key_value_heads"]) == (10000.0, 4)


def test_heads_may_be_larger_than_the_embedding_shared_among_them(open_model):
    tensors = tiny_llama.tensors()
    for layer in range(tiny_llama.LAYERS):
        for name, rows, columns in [("q", 128, HIDDEN), ("k", 64, HIDDEN), ("v", 64, HIDDEN), ("output", HIDDEN, 128)]:
            tensors[f"blk.{layer}.attn_{name}.weight"] = ("F32", (rows, columns), bytes(4 * rows * columns))
    assert open_model(tiny_llama.metadata(llama__attention__key_length=("u32", 32)) | {
        "llama.attention.value_length": ("u32", 32)
    }, tensors).config["head_dim"] == 32  # fmt: skip


def test_an_output_tensor_unties_the_head(open_model):
    head = ("F32", (272, HIDDEN), bytes(range(256)) * (272 * HIDDEN // 64))
    checkpoint = open_model(tensors=tiny_llama.tensors(output__weight=head))
    assert checkpoint.config["tie_word_embeddings"] is False
    assert bytes(checkpoint.read("lm_head.weight").data) == head[2]


def test_tensor_names_are_those_of_the_model_class(open_model):
    checkpoint = open_model()
    layer = ["input_layernorm", "mlp.down_proj", "mlp.gate_proj", "mlp.up_proj", "post_attention_layernorm"]
    layer += [f"self_attn.{part}_proj" for part in "koqv"]
    expected = {f"model.layers.{number}.{name}.weight" for number in range(2) for name in layer}
    assert set(checkpoint.tensors()) == expected | {"model.embed_tokens.weight", "model.norm.weight"}
    assert checkpoint.tensors()["model.embed_tokens.weight"] == TensorSpec("model.embed_tokens.weight", "F32", (272, HIDDEN))


def interleave(rows, heads):
    """What the converter of the llama architecture does: row i of half h of a head goes to row 2i + h."""
    half = len(rows) // heads // 2
    return [rows[head * 2 * half + side * half + pair] for head in range(heads) for pair in range(half) for side in range(2)]


@pytest.mark.parametrize(("part", "heads"), [("q", tiny_llama.HEADS), ("k", tiny_llama.KV_HEADS)])
def test_interleaved_rows_come_back_in_halves(open_model, part, heads):
    rows = heads * tiny_llama.HEAD
    original = [np.full(HIDDEN, row, np.float32).tobytes() for row in range(rows)]
    weight = ("F32", (rows, HIDDEN), b"".join(interleave(original, heads)))
    bias = ("F32", (rows,), np.array(interleave(list(range(rows)), heads), np.float32).tobytes())
    tensors = tiny_llama.tensors(**{f"blk__1__attn_{part}__weight": weight, f"blk__1__attn_{part}__bias": bias})
    checkpoint = open_model(tensors=tensors)
    name = f"model.layers.1.self_attn.{part}_proj"
    assert bytes(checkpoint.read(f"{name}.weight").data) == b"".join(original)
    assert np.frombuffer(checkpoint.read(f"{name}.bias").data, np.float32).tolist() == list(range(rows))


def test_interleaved_rows_of_a_quantised_tensor_move_whole(open_model):
    rows, heads = tiny_llama.HEADS * tiny_llama.HEAD, tiny_llama.HEADS
    stored = scalar_blocks.random_blocks("Q4_1", rows * HIDDEN // 32, np.random.default_rng(5))
    original = [stored[row * 40 : row * 40 + 40] for row in range(rows)]
    as_it_was, moved = (
        open_model(tensors=tiny_llama.tensors(**{name: ("Q4_1", (rows, HIDDEN), data)})).read(
            f"model.layers.0.self_attn.{proj}"
        )
        for name, data, proj in [
            ("blk__0__attn_output__weight", stored, "o_proj.weight"),
            ("blk__0__attn_q__weight", b"".join(interleave(original, heads)), "q_proj.weight"),
        ]
    )
    assert (moved.data, moved.scales, moved.biases) == (as_it_was.data, as_it_was.scales, as_it_was.biases)


@pytest.mark.parametrize(("kind", "width"), [("F32", 4), ("F16", 2), ("BF16", 2)])
def test_plain_tensors_are_views_of_the_file(open_model, kind, width):
    stored = np.random.default_rng(2).bytes(HIDDEN * HIDDEN * width)
    checkpoint = open_model(tensors=tiny_llama.tensors(blk__0__attn_output__weight=(kind, (HIDDEN, HIDDEN), stored)))
    tensor = checkpoint.read("model.layers.0.self_attn.o_proj.weight")
    assert (tensor.spec.dtype, tensor.spec.shape, bytes(tensor.data)) == (kind, (HIDDEN, HIDDEN), stored)
    assert tensor.data.readonly
    assert type(tensor.data.obj).__name__ == "mmap"


def test_views_outlive_the_checkpoint_that_is_closed(open_model):
    checkpoint = open_model()
    tensor = checkpoint.read("model.norm.weight")
    before = bytes(tensor.data)
    checkpoint.close()
    checkpoint.close()
    assert bytes(tensor.data) == before
    with pytest.raises(ModelError, match=r"'model\.norm.weight' is read after the file was closed"):
        checkpoint.read("model.norm.weight")


def test_reading_an_unknown_tensor_is_a_model_error(open_model):
    with pytest.raises(ModelError, match=r"has no tensor 'lm_head\.weight'"):
        open_model().read("lm_head.weight")


def test_nbytes_counts_the_tensors_as_stored(open_model):
    quantised = ("Q4_0", (HIDDEN, HIDDEN), bytes(HIDDEN * HIDDEN // 32 * 18))
    tensors = tiny_llama.tensors(blk__0__attn_output__weight=quantised)
    assert open_model(tensors=tensors).nbytes == sum(len(stored) for _, _, stored in tensors.values())


@pytest.mark.parametrize(
    ("file_type", "name"), [(None, "F32"), (3, "Q4_1"), (15, "Q4_K_M"), (1024 + 7, "Q8_0"), (5, "F32"), (32, "BF16")]
)
def test_the_format_names_the_file_type_or_that_of_most_bytes(open_model, file_type, name):
    metadata = tiny_llama.metadata() | ({} if file_type is None else {"general.file_type": ("u32", file_type)})
    assert open_model(metadata).format == f"gguf {name}"


@pytest.mark.parametrize(("kind", "dtype"), [("F32", "float32"), ("BF16", "bfloat16"), ("F16", "float16"), ("Q8_0", "float16")])
def test_torch_dtype_follows_the_embedding_that_makes_up_most_of_the_file(open_model, kind, dtype):
    bits = {"F32": 32, "BF16": 16, "F16": 16, "Q8_0": 8.5}[kind]
    tensors = {
        name: (kind, shape, bytes(int(np.prod(shape) * bits) // 8)) if len(shape) == 2 else ("F32", shape, stored)
        for name, (_, shape, stored) in tiny_llama.tensors().items()
    }
    assert open_model(tensors=tensors).config["torch_dtype"] == dtype


def test_a_model_in_several_files_is_one_checkpoint(tmp_path, loader):
    tensors = tiny_llama.tensors()
    names = list(tensors)
    parts = [names[:7], names[7:]]
    for number, part in enumerate(parts):
        split = {"split.no": ("u16", number), "split.count": ("u16", 2), "split.tensors.count": ("i32", len(names))}
        metadata = (tiny_llama.metadata() if number == 0 else {}) | split
        data = gguf_writer.document(metadata, {name: tensors[name] for name in part})
        (tmp_path / f"tiny-{number + 1:05}-of-00002.gguf").write_bytes(data)
    checkpoint = loader.open(tmp_path)
    assert checkpoint.nbytes == sum(len(stored) for _, _, stored in tensors.values())
    assert bytes(checkpoint.read("model.layers.1.mlp.down_proj.weight").data) == tensors["blk.1.ffn_down.weight"][2]


def test_shards_under_wrong_names_are_refused(tmp_path, loader):
    for number in range(2):
        split = {"split.no": ("u16", 1 - number), "split.count": ("u16", 2)}
        (tmp_path / f"m-{number + 1:05}-of-00002.gguf").write_bytes(gguf_writer.document(split, {}))
    with pytest.raises(ModelError, match=r"m-00001-of-00002.gguf: is not file 1 of 2 as its name says"):
        loader.open(tmp_path)


def test_a_tensor_in_two_shards_is_refused(tmp_path, loader):
    for number in range(2):
        split = {"split.no": ("u16", number), "split.count": ("u16", 2)}
        data = gguf_writer.document(split, {"t": ("F32", (1,), bytes(4))})
        (tmp_path / f"m-{number + 1:05}-of-00002.gguf").write_bytes(data)
    with pytest.raises(ModelError, match="tensor 't' stands in another file of the model too"):
        loader.open(tmp_path)


def test_a_shard_under_a_plain_name_is_refused(open_model):
    with pytest.raises(ModelError, match="is split into 2 files by its metadata, 1 by its name"):
        open_model(tiny_llama.metadata() | {"split.count": ("u16", 2)})


F32_ROW = ("F32", (HIDDEN,), bytes(4 * HIDDEN))
UNFIT = {
    "no architecture": ({"general__architecture": None}, {}, "metadata key 'general.architecture' is missing"),
    "architecture": (
        {"general__architecture": ("str", "mamba")},
        {},
        r"architecture 'mamba' is not supported \(supported: llama, qwen2",
    ),
    "adapter": ({"general__type": ("str", "adapter")}, {}, "is a GGUF file of type 'adapter', not a model"),
    "experts": (
        {"llama__expert_count": ("u32", 8)},
        {},
        "mixture-of-experts models are not supported for the architecture 'llama'",
    ),
    "key missing": ({"llama__block_count": None}, {}, "metadata key 'llama.block_count' is missing"),
    "eps missing": ({"llama__attention__layer_norm_rms_epsilon": None}, {}, "layer_norm_rms_epsilon' is missing"),
    "key of another type": ({"llama__block_count": ("str", "2")}, {}, "'llama.block_count' is of type str, not an integer"),
    "key negative": ({"llama__block_count": ("i32", -1)}, {}, "'llama.block_count' is -1, which is negative"),
    "key a boolean": ({"llama__block_count": ("bool", True)}, {}, "'llama.block_count' is of type bool, not an integer"),
    "eps not finite": (
        {"llama__attention__layer_norm_rms_epsilon": ("f32", float("nan"))},
        {},
        "is nan, which is not a finite",
    ),
    "layers differ": (
        {"llama__feed_forward_length": ("[u32]", [96, 64])},
        {},
        "'llama.feed_forward_length' differs between layers",
    ),
    "zero": ({"llama__embedding_length": ("u32", 0)}, {}, "layers, heads and lengths must be positive"),
    "layers without number": ({"llama__block_count": ("u64", 2**60)}, {}, "[0-9]+ layers cannot be made of 20 tensors"),
    "too many layers": ({"llama__block_count": ("u32", 3)}, {}, "tensor 'blk.2.attn_norm.weight' is missing"),
    "too few layers": (
        {"llama__block_count": ("u32", 1)},
        {},
        r"tensor 'blk.1.attn_k.weight' is unknown .* \(9 such tensors\)",
    ),
    "heads": ({"llama__attention__head_count_kv": ("u32", 3)}, {}, "4 attention heads cannot be shared by 3 key-value heads"),
    "head size": ({"llama__attention__head_count": ("u32", 6)}, {}, "an embedding of 64 cannot be divided among 6 heads"),
    "value size": ({"llama__attention__value_length": ("u32", 8)}, {}, r"another size than key heads \(16\) are not supported"),
    "partial RoPE": (
        {"llama__rope__dimension_count": ("u32", 8)},
        {},
        "RoPE over 8 of 16 dimensions of a head is not supported",
    ),
    "theta": ({"llama__rope__freq_base": ("f32", 0.0)}, {}, "freq_base is 0.0, it must be positive"),
    "embedding missing": ({}, {"token_embd__weight": None}, "tensor 'token_embd.weight' is missing"),
    "tensor missing": ({}, {"blk__1__ffn_up__weight": None}, "tensor 'blk.1.ffn_up.weight' is missing"),
    "tensor shape": (
        {},
        {"output_norm__weight": ("F32", (32,), bytes(128))},
        r"'output_norm.weight' has shape \[32\], not \[64\]",
    ),
    "tensor unknown": ({}, {"blk__0__attn_q_norm__weight": F32_ROW}, "'blk.0.attn_q_norm.weight' is unknown to the arch"),
    "tokens": ({}, {"token_embd__weight": ("F32", (200, HIDDEN), bytes(51200))}, "264 tokens, but embeddings for 200"),
    "frequency factors": (
        {},
        {"rope_freqs__weight": ("F32", (4,), bytes(16))},
        "'rope_freqs.weight' must hold 8 positive factors",
    ),
    "frequency type": ({}, {"rope_freqs__weight": ("F16", (8,), bytes(16))}, "'rope_freqs.weight' is F16, not F32"),
}


@pytest.mark.parametrize("case", UNFIT)
def test_a_model_that_does_not_fit_together_is_one_clear_error(open_model, case):
    metadata, tensors, message = UNFIT[case]
    changed = {key: value for key, value in metadata.items() if value is not None}
    removed = {key: value for key, value in metadata.items() if value is None}
    with pytest.raises(ModelError, match=message) as caught:
        open_model(tiny_llama.metadata(**changed, **removed), tiny_llama.tensors(**tensors))
    assert "tiny.gguf: " in str(caught.value)
    assert "\n" not in str(caught.value)


def test_random_damage_is_a_model_error_or_a_checkpoint_that_can_be_read(tmp_path, loader):
    good = gguf_writer.document(tiny_llama.metadata(), tiny_llama.tensors())
    end_of_header = good.index(b"blk.1.ffn_down.weight") + 60
    random = np.random.default_rng(8)
    path = tmp_path / "damaged.gguf"
    refused = 0
    for _ in range(300):
        data = bytearray(good)
        for place in random.integers(0, end_of_header, 2):
            data[place] = random.choice([0, 1, 8, 255, random.integers(256)])
        path.write_bytes(data)
        try:
            checkpoint = loader.open(path)
            for name in checkpoint.tensors():
                checkpoint.read(name)
        except ModelError:
            refused += 1
    assert 50 < refused < 300


def test_equal_lengths_of_all_layers_count_as_one(open_model):
    assert open_model(tiny_llama.metadata(llama__feed_forward_length=("[u32]", [96, 96]))).config["intermediate_size"] == 96


SCALINGS = [
    ({"type": ("str", "none"), "factor": ("f32", 2.0)}, None),
    ({"type": ("str", "linear"), "factor": ("f32", 4.0)}, {"rope_type": "linear", "factor": 4.0}),
    ({"type": ("str", "linear"), "factor": ("f32", 1.0)}, None),
    (
        {
            "type": ("str", "yarn"),
            "factor": ("f32", 4.0),
            "original_context_length": ("u32", 128),
            "yarn_beta_fast": ("f32", 8.0),
        },
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128, "beta_fast": 8.0},
    ),
]


@pytest.mark.parametrize(("keys", "expected"), SCALINGS)
def test_rope_scaling(open_model, keys, expected):
    metadata = tiny_llama.metadata() | {f"llama.rope.scaling.{key}": value for key, value in keys.items()}
    assert open_model(metadata).config["rope_scaling"] == expected


def test_rope_scaling_of_old_files(open_model):
    metadata = tiny_llama.metadata(llama__rope__scale_linear=("f32", 2.0))
    assert open_model(metadata).config["rope_scaling"] == {"rope_type": "linear", "factor": 2.0}


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"type": ("str", "longrope")}, r"scaling.type 'longrope' is not supported \(supported: none, linear, yarn\)"),
        ({"type": ("str", "linear"), "factor": ("f32", -1.0)}, "factor is -1.0, it must be positive"),
        ({"type": ("str", "yarn"), "factor": ("f32", 2.0)}, "original_context_length' is missing"),
    ],
)
def test_rope_scaling_that_cannot_be_said_is_an_error(open_model, keys, message):
    with pytest.raises(ModelError, match=message):
        open_model(tiny_llama.metadata() | {f"llama.rope.scaling.{key}": value for key, value in keys.items()})


def test_frequency_factors_stand_in_the_configuration(open_model):
    factors = [1.0, 1.0, 1.25, 2.0, 4.0, 8.0, 8.0, 8.0]
    stored = ("F32", (8,), np.array(factors, np.float32).tobytes())
    checkpoint = open_model(tensors=tiny_llama.tensors(rope_freqs__weight=stored))
    assert checkpoint.config["rope_freqs"] == factors
    assert not any("rope" in name for name in checkpoint.tensors())


def test_biases_are_named_in_the_configuration(open_model):
    biases = {"attn_q": 64, "attn_k": 32, "attn_v": 32, "attn_output": 64, "ffn_gate": 96, "ffn_up": 96, "ffn_down": 64}
    extra = {
        f"blk__{layer}__{name}__bias": ("F32", (rows,), bytes(4 * rows)) for layer in range(2) for name, rows in biases.items()
    }
    checkpoint = open_model(tensors=tiny_llama.tensors(**extra))
    assert (checkpoint.config["attention_bias"], checkpoint.config["mlp_bias"]) == (True, True)
    assert sum(name.endswith(".bias") for name in checkpoint.tensors()) == 14


def test_recommended_sampling_stands_in_the_generation_configuration(open_model):
    sampling = {"temp": ("f32", 0.6), "top_k": ("i32", 20), "top_p": ("f32", 0.95), "penalty_repeat": ("f32", 1.05)}
    checkpoint = open_model(tiny_llama.metadata() | {f"general.sampling.{key}": value for key, value in sampling.items()})
    assert checkpoint.generation_config == {
        "bos_token_id": 1,
        "eos_token_id": 0,
        "temperature": 0.6,
        "top_k": 20,
        "top_p": 0.95,
        "repetition_penalty": 1.05,
    }
