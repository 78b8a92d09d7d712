"""What a checkpoint may hold, what is refused and how, and what the model says of itself."""

import json
import logging
import math
import threading

import mlx.core as mx
import numpy as np
import pytest

from lattice_core.descriptors import Settings
from lattice_core.errors import ModelError, UsageError
from lattice_core.types import AffineQuantization, Limits, RowInput, TensorData, TensorSpec
from lattice_mlx import backend
from lattice_mlx.backend import MlxBackend
from tests.mlx.naive_llama import DATA, NaiveLlama, random_checkpoint
from tests.mlx.safetensors_checkpoint import SafetensorsCheckpoint

F32 = "tiny-llama-tied-f32"
PACKED = "mlx-llama-4bit"


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"architectures": ["GPT2LMHeadModel"]}, "'GPT2LMHeadModel' is not one that the mlx backend runs: LlamaForCausalLM"),
        ({"architectures": None, "model_type": "mamba"}, "'mamba' is not one"),
        ({"architectures": []}, "architecture 'None' is not one"),
        ({"hidden_size": 0}, r"config.hidden_size is 0: expected a whole number from 1 to 1048576"),
        ({"hidden_size": 32.0}, r"config.hidden_size is 32.0"),
        ({"hidden_size": True}, r"config.hidden_size is True"),
        ({"hidden_size": "32"}, r"config.hidden_size is '32'"),
        ({"num_hidden_layers": 10**9}, r"config.num_hidden_layers is 1000000000: expected a whole number from 1 to 4096"),
        ({"num_attention_heads": None}, r"config.num_attention_heads is missing"),
        ({"num_key_value_heads": 3}, r"config.num_key_value_heads is 3: expected a divisor of num_attention_heads, 4"),
        ({"num_attention_heads": 3, "num_key_value_heads": 3}, r"config.hidden_size is 32: expected a multiple of"),
        ({"head_dim": 7}, r"config.head_dim is 7: rotary positions need an even number"),
        ({"rms_norm_eps": math.nan}, r"config.rms_norm_eps is nan: expected a finite number above 0"),
        ({"rms_norm_eps": -1e-5}, r"config.rms_norm_eps is -1e-05"),
        ({"hidden_act": "gelu"}, r"config.hidden_act is 'gelu': this backend knows silu"),
        ({"attention_bias": "no"}, r"config.attention_bias is 'no': expected true or false"),
        ({"max_position_embeddings": -1}, r"config.max_position_embeddings is -1"),
        ({"eos_token_id": 96}, r"config.eos_token_id 96 is outside the vocabulary of 96"),
        ({"eos_token_id": ["x"]}, r"config.eos_token_id is \['x'\]: expected a token id"),
        (
            {"vocab_size": 97},
            r"2 tensors have another shape than expected: model.embed_tokens.weight is \[96, 32\], the config",
        ),
        ({"intermediate_size": 64}, r"6 tensors have another shape"),
        ({"num_hidden_layers": 3}, r"the checkpoint lacks 9 tensors: model.layers.2.input_layernorm.weight, .* and 4 more"),
        ({"num_hidden_layers": 1}, r"the checkpoint holds 9 tensors: model.layers.1.* does not use"),
        ({"attention_bias": True}, r"the checkpoint lacks 8 tensors: model.layers.0.self_attn.q_proj.bias"),
    ],
)
def test_a_config_that_cannot_be_honoured_is_one_clear_line(loaded, config, message):
    checkpoint = random_checkpoint()
    checkpoint.config = {**checkpoint.config, **config}
    with pytest.raises(ModelError, match=message) as caught:
        loaded(checkpoint)
    assert "\n" not in caught.value.message


def test_model_type_serves_where_no_architecture_is_named(loaded):
    checkpoint = random_checkpoint()
    del checkpoint.config["architectures"]
    checkpoint.config["model_type"] = "llama"
    assert loaded(checkpoint).info.architecture == "LlamaForCausalLM"


def test_missing_surplus_and_misshapen_tensors_are_named_before_anything_is_read(loaded):
    checkpoint = random_checkpoint()
    del checkpoint.arrays["model.norm.weight"]
    checkpoint.read = None
    with pytest.raises(ModelError, match=r"the checkpoint lacks 1 tensor: model.norm.weight"):
        loaded(checkpoint)
    checkpoint = random_checkpoint()
    checkpoint.arrays["model.layers.0.self_attn.q_norm.weight"] = np.ones(8, np.float32)
    with pytest.raises(ModelError, match=r"holds 1 tensor: model.layers.0.self_attn.q_norm.weight, which the architecture"):
        loaded(checkpoint)
    checkpoint = random_checkpoint()
    checkpoint.arrays["model.norm.weight"] = np.ones(16, np.float32)
    with pytest.raises(ModelError, match=r"1 tensors? ha.* shape.*model.norm.weight is \[16\], the config asks for \[32\]"):
        loaded(checkpoint)


def test_known_harmless_tensors_are_skipped(loaded):
    checkpoint = random_checkpoint(tie_word_embeddings=True)
    checkpoint.arrays["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.ones(4, np.float32)
    checkpoint.arrays["lm_head.weight"] = checkpoint.arrays["model.embed_tokens.weight"]
    assert loaded(checkpoint).info.vocab_size == 96


class OddCheckpoint(SafetensorsCheckpoint):
    """The 4-bit model with one tensor described or stored otherwise."""

    name = "model.layers.0.mlp.up_proj.weight"

    def __init__(self, spec=None, **data):
        super().__init__(DATA / PACKED)
        self._odd_spec, self._odd_data = spec, data

    def tensors(self):
        return {**super().tensors(), **({self.name: self._odd_spec} if self._odd_spec else {})}

    def read(self, name):
        found = super().read(name)
        if name != self.name or not self._odd_data:
            return found
        parts = {"data": found.data, "scales": found.scales, "biases": found.biases, **self._odd_data}
        return TensorData(found.spec, **parts)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (TensorSpec(OddCheckpoint.name, "I64", (192, 96)), "up_proj.weight is I64; the mlx backend reads F32, F16, BF16"),
        (
            TensorSpec(OddCheckpoint.name, "U32", (192, 96), AffineQuantization(7, 32)),
            "quantised to 7 bits in groups of 32; the mlx backend reads 2, 3, 4, 5, 6, 8 bits in groups of 32, 64, 128",
        ),
        (TensorSpec(OddCheckpoint.name, "U32", (192, 96), AffineQuantization(4, 16)), "4 bits in groups of 16"),
        (TensorSpec(OddCheckpoint.name, "U32", (192, 96), AffineQuantization(4, 64)), "does not divide into groups of 64"),
        (TensorSpec(OddCheckpoint.name, "U32", (192, 96), AffineQuantization(4, 32, "F8")), "scales of F8"),
    ],
)
def test_storage_that_the_backend_cannot_read_is_refused(loaded, spec, message):
    with pytest.raises(ModelError, match=message):
        loaded(OddCheckpoint(spec))


def test_bytes_that_do_not_fit_their_description_are_refused(loaded):
    short = memoryview(bytes(8))
    with pytest.raises(ModelError, match=r"up_proj.weight of U32 \[192, 12\] has 8 bytes, expected 9216"):
        loaded(OddCheckpoint(data=short))
    with pytest.raises(ModelError, match=r"up_proj.weight \(scales\) of BF16 \[192, 3\] has 8 bytes, expected 1152"):
        loaded(OddCheckpoint(scales=short))
    with pytest.raises(ModelError, match=r"up_proj.weight is quantised and has no scales or biases"):
        loaded(OddCheckpoint(scales=None))


def test_every_tensor_is_read_once_and_progress_ends_at_the_total():
    checkpoint = SafetensorsCheckpoint(DATA / "tiny-llama3rope-untied-bf16")
    steps = []
    MlxBackend(Settings()).load(checkpoint, Limits(), lambda done, total: steps.append((done, total)))
    assert sorted(checkpoint.reads) == sorted(checkpoint.tensors())
    assert [done for done, _ in steps] == sorted(done for done, _ in steps)
    assert len(steps) > 10
    assert steps[-1] == (checkpoint.nbytes, checkpoint.nbytes)
    assert {total for _, total in steps} == {checkpoint.nbytes}


def test_the_model_says_what_it_is(models):
    info = models(F32).info
    assert info.architecture == "LlamaForCausalLM"
    assert (info.vocab_size, info.context, info.dtype) == (512, 4096, "float32")
    assert info.eos_ids == {493, 495}
    assert info.device.startswith("MLX ")
    assert "CPU" in info.device
    assert "BLAS" not in info.device
    assert info.lookahead is False
    parameters = sum(math.prod(spec.shape) for spec in SafetensorsCheckpoint(DATA / F32).tensors().values())
    assert info.nbytes == 4 * parameters


def test_fingerprints_tell_models_apart(models, loaded):
    prints = {models(name).info.fingerprint for name in (F32, "tiny-llama-tied-bf16", PACKED)}
    prints |= {loaded(random_checkpoint(seed)).info.fingerprint for seed in (0, 1)}
    assert len(prints) == 5
    assert loaded(random_checkpoint(1)).info.fingerprint in prints


def test_the_context_can_be_made_smaller_and_not_larger(loaded):
    assert loaded(random_checkpoint(), Limits(context=100)).info.context == 100
    with pytest.raises(ModelError, match=r"--context 2049: this model was made for 1 to 2048 tokens"):
        loaded(random_checkpoint(), Limits(context=2049))


def test_end_of_sequence_ids_come_from_every_place_that_names_one(loaded):
    checkpoint = random_checkpoint(eos_token_id=[5, 6])
    checkpoint.generation_config = {"eos_token_id": 7}
    checkpoint.tokenizer_config = {"eos_token": {"content": "<end>", "lstrip": False}}
    added = [{"id": 8, "content": "<end>"}, {"id": 9, "content": "<start>"}]
    checkpoint.tokenizer_json = json.dumps({"added_tokens": added}).encode()
    assert loaded(checkpoint).info.eos_ids == {5, 6, 7, 8}
    checkpoint.tokenizer_config = {"eos_token": "<start>"}
    assert loaded(checkpoint).info.eos_ids == {5, 6, 7, 9}
    checkpoint.tokenizer_json = b"no json"
    with pytest.raises(ModelError, match="the tokenizer JSON cannot be read"):
        loaded(checkpoint)


# ------------------------------------------------------------------------------------ packed weights and dtypes


@pytest.mark.parametrize("name", [PACKED, "mixed"])
def test_packed_and_expanded_weights_give_the_same_logits(loaded, feed, name):
    def checkpoint():
        made = SafetensorsCheckpoint(DATA / PACKED)
        if name == "mixed":  # one projection of a fused group stands dense in the file
            dense = NaiveLlama(made).w["model.layers.0.self_attn.k_proj.weight"].astype(np.float32)
            for part in ("scales", "biases"):
                del made.parts[f"model.layers.0.self_attn.k_proj.{part}"]
            made.parts["model.layers.0.self_attn.k_proj.weight"] = ("F32", dense.shape, memoryview(dense).cast("B"))
        return made

    packed, expanded = (loaded(checkpoint(), dequantize=choice) for choice in ("never", "always"))
    assert packed.info.nbytes < expanded.info.nbytes / 3
    ids = np.load(DATA / PACKED / "reference.npz")["prompt_ids"]
    ours, theirs = (feed(model, model.new_state(), ids) for model in (packed, expanded))
    assert np.abs(ours - theirs).max() < 1e-3
    assert (ours.argmax(-1) == theirs.argmax(-1)).all()


def test_quantised_weights_stay_packed_when_they_would_not_fit(loaded, monkeypatch, caplog):
    caplog.set_level(logging.INFO, "lattice.mlx")
    monkeypatch.setattr(backend, "free_bytes", lambda: 1_000_000)
    model = loaded(SafetensorsCheckpoint(DATA / PACKED))
    assert model.info.nbytes < 300_000
    assert "kept packed, which is slower: expanded they take 1 MB of 1 MB free" in caplog.text
    monkeypatch.setattr(backend, "free_bytes", lambda: None)
    assert loaded(SafetensorsCheckpoint(DATA / PACKED)).info.nbytes > 800_000


@pytest.mark.parametrize(("dtype", "bound"), [("bfloat16", 0.4), ("float16", 0.05)])
@pytest.mark.parametrize("name", [F32, PACKED])
def test_other_dtypes_run_without_promotion(loaded, feed, dtype, bound, name):
    model = loaded(SafetensorsCheckpoint(DATA / name), Limits(dtype=dtype))
    assert model.info.dtype == dtype
    reference = np.load(DATA / name / "reference.npz")
    state = model.new_state()
    logits = feed(model, state, reference["prompt_ids"])
    feed(model, state, [1])
    assert logits.dtype == np.float32
    assert np.abs(logits - reference["logits"]).max() < bound
    assert model._sequences[state].slab.layers[0].dtype == getattr(mx, dtype)
    # Norms that are stored in float32 stay so.
    assert model.info.nbytes == pytest.approx(loaded(SafetensorsCheckpoint(DATA / name)).info.nbytes // 2, rel=0.01)


def test_dtypes_and_devices_that_cannot_be_had_are_refused(loaded):
    with pytest.raises(ModelError, match="--dtype int8: the mlx backend computes in float32, bfloat16, float16"):
        loaded(random_checkpoint(), Limits(dtype="int8"))
    with pytest.raises(ModelError, match=r"--mlx-dequantize never: .* bfloat16; use --dtype float32"):
        loaded(SafetensorsCheckpoint(DATA / PACKED), Limits(dtype="bfloat16"), dequantize="never")
    if not mx.is_available(mx.Device(mx.gpu)):
        with pytest.raises(UsageError, match="--mlx-device gpu: this build of MLX has no GPU"):
            MlxBackend(Settings(own={"device": "gpu"}))


def test_the_start_is_said_in_one_line(loaded, caplog):
    caplog.set_level(logging.INFO, "lattice.mlx")
    loaded(SafetensorsCheckpoint(DATA / PACKED))
    [line] = [record.getMessage() for record in caplog.records if record.getMessage().startswith("MLX ")]
    assert "float32" in line
    assert "BLAS" in line
    assert "quantised weights expanded to 1 MB" in line


def test_a_model_serves_on_whichever_thread_loaded_it(loaded):
    results, ids = [], np.load(DATA / F32 / "reference.npz")["prompt_ids"]

    def work():
        model = loaded(SafetensorsCheckpoint(DATA / F32))
        state = model.new_state()
        logits = model.forward([RowInput(state, tuple(ids.tolist()))]).array
        model.launch([logits])
        results.append(model.read_logits(logits))
        model.release([state])
        model.close()

    for _ in range(2):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join(60)
    assert len(results) == 2
    np.testing.assert_array_equal(results[0], results[1])
