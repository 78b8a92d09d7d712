"""Files of Qwen models that do not fit together, or say what cannot be honoured, are one clear error."""

import numpy as np
import pytest

from lattice_core.errors import ModelError
from tests.gguf import gguf_writer, hf_model, qwen_conversion

DENSE, HYBRID, EXPERTS = "tiny-qwen3-tied-f32", "tiny-qwen35-nested-bf16", "tiny-qwen35moe-untied-f32"
ROW = ("F32", (64,), bytes(256))


def rates(*numbers):
    return ("F32", (4,), np.array(numbers, np.float32).tobytes())


def u32(number):
    return ("u32", number)


BROKEN = {
    "experts of a dense architecture": (
        DENSE,
        {"qwen3.expert_count": u32(4)},
        {},
        "mixture-of-experts models are not supported for the architecture 'qwen3'",
    ),
    "norm missing": (DENSE, {}, {"blk.1.attn_q_norm.weight": None}, "tensor 'blk.1.attn_q_norm.weight' is missing"),
    "bias that Qwen3 has not": (DENSE, {}, {"blk.0.attn_q.bias": ROW}, "'blk.0.attn_q.bias' is unknown to the architecture"),
    "reranker": (DENSE, {}, {"cls.output.weight": ROW}, "'cls.output.weight' is unknown to the architecture 'qwen3'"),
    "partial RoPE": (DENSE, {"qwen3.rope.dimension_count": u32(8)}, {}, "RoPE over 8 of 32 dimensions of a head is not supp"),
    "looks ahead": (
        DENSE,
        {"qwen3.attention.causal": ("bool", False)},
        {},
        "qwen3.attention.causal is false: attention to later tokens is not supported",
    ),
    "scaling": (
        DENSE,
        {"qwen3.rope.scaling.type": ("str", "longrope")},
        {},
        "'longrope' is not supported",
    ),
    "odd rotary dimensions": (HYBRID, {"qwen35.rope.dimension_count": u32(7)}, {}, "RoPE over 7 of 32 dimensions"),
    "no rotary dimensions": (HYBRID, {"qwen35.rope.dimension_count": u32(0)}, {}, "RoPE over 0 of 32 dimensions"),
    "too many rotary dimensions": (HYBRID, {"qwen35.rope.dimension_count": u32(64)}, {}, "RoPE over 64 of 32 dimensions"),
    "state size missing": (HYBRID, {"qwen35.ssm.state_size": None}, {}, "'qwen35.ssm.state_size' is missing"),
    "kernel 0": (HYBRID, {"qwen35.ssm.conv_kernel": u32(0)}, {}, "qwen35.ssm: heads, sizes and the kernel must be positive"),
    "kernel": (
        HYBRID,
        {"qwen35.ssm.conv_kernel": u32(5)},
        {},
        r"'blk.0.ssm_conv1d.weight' has shape \[256, 4\], not \[256, 5, 1\]",
    ),
    "value heads": (
        HYBRID,
        {"qwen35.ssm.time_step_rank": u32(5)},
        {},
        r"5 value heads \(ssm.time_step_rank\) cannot be shared by 2 key heads",
    ),
    "inner size": (
        HYBRID,
        {"qwen35.ssm.inner_size": u32(130)},
        {},
        r"an inner size of 130 \(ssm.inner_size\) cannot be divided among 4 value heads",
    ),
    "heads in another order": (
        HYBRID,
        {"qwen35.ssm.v_head_reordered": ("bool", False)},
        {},
        "qwen35.ssm.v_head_reordered is false: value heads in this order are not supported",
    ),
    "interval": (HYBRID, {"qwen35.full_attention_interval": u32(0)}, {}, "full_attention_interval is 0, it must be positive"),
    "no recurrent layer": (
        HYBRID,
        {"qwen35.full_attention_interval": u32(1)},
        {},
        "qwen35: none of 4 layers is recurrent, which is not supported",
    ),
    "list of layers": (
        HYBRID,
        {"qwen35.attention.recurrent_layers": ("[bool]", [True, False])},
        {},
        "'qwen35.attention.recurrent_layers' has 2 elements for 5 layers",
    ),
    "recurrent prediction": (
        HYBRID,
        {"qwen35.attention.recurrent_layers": ("[bool]", [True] * 5)},
        {},
        "a recurrent layer for multi-token prediction is not supported",
    ),
    "two prediction layers": (
        HYBRID,
        {"qwen35.nextn_predict_layers": u32(2), "qwen35.block_count": u32(6)},
        {},
        r"2 layers for multi-token prediction are not supported \(one is\)",
    ),
    "prediction layers only": (
        HYBRID,
        {"qwen35.nextn_predict_layers": u32(1), "qwen35.block_count": u32(1)},
        {},
        "1 of 1 layers are for multi-token prediction, which leaves none",
    ),
    "prediction head that is not counted": (
        HYBRID,
        {"qwen35.nextn_predict_layers": None, "qwen35.block_count": u32(4)},
        {},
        "tensor 'blk.4.attn_k.weight' is unknown",
    ),
    "prediction head missing": (HYBRID, {}, {"blk.4.nextn.enorm.weight": None}, "'blk.4.nextn.enorm.weight' is missing"),
    "prediction head with embeddings": (
        HYBRID,
        {},
        {"blk.4.nextn.embed_tokens.weight": ROW},
        "'blk.4.nextn.embed_tokens.weight' is unknown",
    ),
    "layer of the other kind": (
        HYBRID,
        {"qwen35.attention.recurrent_layers": ("[bool]", [True, True, False, True, False])},
        {},
        "tensor 'blk.2.attn_q.weight' is missing",
    ),
    "decay type": (HYBRID, {}, {"blk.0.ssm_a": ("F16", (4,), bytes(8))}, "tensor 'blk.0.ssm_a' is F16, not F32"),
    "experts missing": (EXPERTS, {"qwen35moe.expert_count": None}, {}, "'qwen35moe.expert_count' is missing"),
    "no experts": (EXPERTS, {"qwen35moe.expert_count": u32(0)}, {}, "experts and their lengths must be positive"),
    "experts used": (
        EXPERTS,
        {"qwen35moe.expert_used_count": u32(7)},
        {},
        "qwen35moe.expert_used_count is 7, it must be from 1 to 6",
    ),
    "no expert used": (EXPERTS, {"qwen35moe.expert_used_count": u32(0)}, {}, "expert_used_count is 0, it must be from 1 to 6"),
    "shared expert": (
        EXPERTS,
        {"qwen35moe.expert_shared_feed_forward_length": None},
        {},
        "'qwen35moe.expert_shared_feed_forward_length' is missing",
    ),
    "shape of experts": (
        EXPERTS,
        {"qwen35moe.expert_feed_forward_length": u32(64)},
        {},
        r"'blk.0.ffn_gate_exps.weight' has shape \[6, 32, 64\], not \[6, 64, 64\]",
    ),
    "one of gate and up": (EXPERTS, {}, {"blk.3.ffn_up_exps.weight": None}, "tensor 'blk.3.ffn_up_exps.weight' is missing"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_file_that_does_not_fit_together_is_one_clear_error(open_converted, case):
    name, metadata, tensors, message = BROKEN[case]
    with pytest.raises(ModelError, match=message) as caught:
        open_converted(hf_model.fixture(name), metadata=metadata, tensors=tensors)
    assert "tiny.gguf: " in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("numbers", [(-1, -1, 0, -1), (-1, 2, -1, -1), (-1, -1, -1, float("nan")), (float("-inf"), -1, -1, -1)])
def test_a_decay_that_no_logarithm_can_give_is_an_error_when_it_is_read(open_converted, numbers):
    checkpoint = open_converted(hf_model.fixture(HYBRID), tensors={"blk.1.ssm_a": rates(*numbers)})
    with pytest.raises(ModelError, match=r"tensor 'blk.1.ssm_a' holds rates of decay that are not negative numbers"):
        checkpoint.read("model.layers.1.linear_attn.A_log")


def test_narrow_heads_in_wide_groups_are_an_error_that_says_what_to_do(open_converted):
    model = hf_model.fixture("tiny-qwen35-untied-f32")
    quantised = {"blk.2.ssm_out.weight": ("Q8_0", (64, 64), bytes(64 * 2 * 34))}
    message = (
        r"'blk.2.ssm_out.weight' is Q8_0, but its columns move by 16, .* the 32 of a group; use a file that keeps it in F16"
    )
    with pytest.raises(ModelError, match=message):
        open_converted(model, tensors=quantised)
    assert open_converted(model, "F16").tensors()["model.layers.2.linear_attn.out_proj.weight"].dtype == "F16"


def test_an_unknown_architecture_lists_the_known(open_converted):
    listed = "llama, qwen2, qwen3, qwen3moe, qwen35, qwen35moe"
    with pytest.raises(ModelError, match=rf"architecture 'qwen3next' is not supported \(supported: {listed}\)"):
        open_converted(hf_model.fixture(DENSE), metadata={"general.architecture": ("str", "qwen3next")})


def test_random_damage_is_a_model_error_or_a_checkpoint_that_can_be_read(tmp_path, loader):
    model = hf_model.fixture(HYBRID)
    good = gguf_writer.document(qwen_conversion.metadata(model), qwen_conversion.tensors(model))
    keys_end, table = good.index(b"tokenizer.ggml.model"), good.index(b"\x11\x00\x00\x00\x00\x00\x00\x00token_embd.weight")
    random, path, refused = np.random.default_rng(8), tmp_path / "damaged.gguf", 0
    for _ in range(200):
        data = bytearray(good)
        start, stop = random.choice([[0, keys_end], [table, table + 3000]])
        data[random.integers(start, stop)] = random.choice([0, 1, 8, 255, random.integers(256)])
        path.write_bytes(data)
        try:
            checkpoint = loader.open(path)
            for name in checkpoint.tensors():
                checkpoint.read(name)
        except ModelError:
            refused += 1
    assert 30 < refused < 200
