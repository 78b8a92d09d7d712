"""Layouts that checkpoints have, told apart without guessing; architectures that plugins add; descriptions without weights."""

import numpy as np
import pytest
from attrs import evolve

from lattice_core.descriptors import ArchitectureSpec, Settings
from lattice_core.errors import ModelError, PluginError
from lattice_core.types import Limits
from lattice_mlx.backend import MlxBackend
from lattice_mlx.llama import read_llama
from lattice_mlx.mixture_of_experts import route
from lattice_safetensors.loader import SafetensorsLoader
from tests.mlx.naive_llama import DATA
from tests.mlx.test_mtp_head import Without

NAMES = tuple(sorted(path.parent.name for path in DATA.glob("*/reference.npz")))


class Changed(Without):
    """A checkpoint whose configuration or tensor records differ."""

    def __init__(self, name, config=None, specs=None):
        super().__init__(SafetensorsLoader(Settings()).open(DATA / name), lambda _name: False)
        self.config = {**self._checkpoint.config, **(config or {})}
        self._specs = specs or (lambda spec: spec)

    def tensors(self):
        return {name: self._specs(spec) for name, spec in self._checkpoint.tensors().items()}


def backend(**architectures):
    return MlxBackend(Settings(architectures=architectures))


def load(made, checkpoint, **limits):
    return made.load(checkpoint, Limits(**limits), lambda _done, _total: None)


def test_convolutions_of_two_layouts_in_one_checkpoint_are_refused():
    def one_moved(spec):
        moved = spec.name.endswith("layers.1.linear_attn.conv1d.weight")
        return evolve(spec, shape=(spec.shape[0], spec.shape[2], spec.shape[1])) if moved else spec

    with pytest.raises(ModelError, match=r"some layers store conv1d.weight as \[channels, 1, kernel\]"):
        load(backend(), Changed("tiny-qwen35-tied-f32", specs=one_moved))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"layer_types": ["full_attention"]}, "config.layer_types is .*expected a list of 4 times"),
        ({"linear_num_value_heads": 3}, "linear_num_value_heads is 3: expected a multiple of linear_num_key_heads, 2"),
        ({"linear_key_head_dim": 1 << 30}, "linear_key_head_dim is 1073741824"),
        ({"linear_conv_kernel_dim": 1}, "does not tell how the convolution is stored"),
        ({"head_dim": 1 << 20}, "head_dim is 1048576"),
        ({"rope_parameters": {"rope_theta": 1e7, "partial_rotary_factor": 0.01}}, "0 of 32 dimensions would turn"),
    ],
)
def test_configurations_of_hybrid_models_that_cannot_be_meant_are_one_clear_line(config, message):
    with pytest.raises(ModelError, match=message):
        load(backend(), Changed("tiny-qwen35-tied-f32", config))


def test_a_tied_model_with_another_head_is_refused_and_one_with_a_copy_is_not():
    class Headed(Changed):
        def __init__(self, row):
            super().__init__("tiny-llama-tied-f32")
            self._row = row

        def tensors(self):
            held = super().tensors()
            return {**held, "lm_head.weight": evolve(held["model.embed_tokens.weight"], name="lm_head.weight")}

        def read(self, name):
            if name != "lm_head.weight":
                return self._checkpoint.read(name)
            data = self._checkpoint.read("model.embed_tokens.weight")
            raw = bytearray(data.data)
            raw[5] ^= self._row
            return evolve(data, data=memoryview(raw))

    assert load(backend(), Headed(0)).info.vocab_size == 512
    with pytest.raises(ModelError, match=r"is true, but the checkpoint holds lm_head\.weight with other numbers"):
        load(backend(), Headed(1))


def test_equal_probabilities_choose_the_lower_expert():
    import mlx.core as mx  # noqa: PLC0415  after the BLAS

    shares, chosen = route(mx.zeros((3, 8)), 3, renormalise=True)
    assert chosen.tolist() == [[0, 1, 2]] * 3
    np.testing.assert_allclose(np.array(shares), 1 / 3, rtol=1e-6)
    shares, chosen = route(mx.array([[0.0, 5.0, 1.0, 5.0]]), 2, renormalise=False)
    assert chosen.tolist() == [[1, 3]]
    assert 0.9 < float(mx.sum(shares).item()) < 1


MINE = ArchitectureSpec(
    name="mine", summary="s", backend="mlx", factory=read_llama, classes=("MyForCausalLM",), model_types=("mine",)
)


def test_a_plugin_adds_an_architecture():
    checkpoint = Changed("tiny-llama-tied-f32", {"architectures": ["MyForCausalLM"]})
    with pytest.raises(ModelError, match="'MyForCausalLM' is not one that the mlx backend runs"):
        load(backend(), checkpoint)
    assert load(backend(mine=MINE), checkpoint).info.architecture == "MyForCausalLM"


def test_two_architectures_for_one_class_are_an_error_and_one_can_be_chosen():
    rival = evolve(MINE, name="rival", classes=("LlamaForCausalLM",))
    checkpoint = Changed("tiny-llama-tied-f32")
    with pytest.raises(PluginError, match="claimed by the architectures llama and rival; say --mlx-architecture llama"):
        load(backend(rival=rival), checkpoint)
    chosen = MlxBackend(Settings(own={"architecture": "rival"}, architectures={"rival": rival}))
    assert load(chosen, checkpoint).info.vocab_size == 512


def test_an_architecture_that_breaks_is_named():
    def broken(_config):
        raise ZeroDivisionError("oops")

    with pytest.raises(PluginError, match="architecture 'broken' could not read the configuration: ZeroDivisionError: oops"):
        load(
            backend(broken=evolve(MINE, name="broken", factory=broken)),
            Changed("tiny-llama-tied-f32", {"architectures": ["MyForCausalLM"]}),
        )


def test_a_description_tells_of_storage_that_cannot_be_read():
    def stored_otherwise(spec):
        return evolve(spec, dtype="F8_E4M3") if spec.name == "model.norm.weight" else spec

    described = backend().describe(Changed("tiny-llama-tied-f32", specs=stored_otherwise), Limits())
    assert described.misshapen == ("tensor model.norm.weight is F8_E4M3; the mlx backend reads F32, F16, BF16",)


@pytest.mark.parametrize("name", NAMES)
def test_a_description_needs_no_weights_and_tells_what_loading_gives(name):
    checkpoint = SafetensorsLoader(Settings()).open(DATA / name)
    made, read = backend(), checkpoint.read
    checkpoint.read = None
    described = made.describe(checkpoint, Limits(context=128))
    checkpoint.read = read
    model = load(made, checkpoint, context=128)
    assert (described.missing, described.unexpected, described.misshapen) == ((), (), ())
    assert described.state_bytes(100) == model.info.state_bytes(100)
    assert described.context == model.info.context == 128
    assert described.weight_bytes == pytest.approx(model.info.nbytes, rel=0.05)
