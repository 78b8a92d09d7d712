"""Adapters on real models: what PEFT and mlx-lm made gives the logits of merged weights, alone and beside others."""

import numpy as np
import pytest

from lattice_core.descriptors import Settings
from lattice_core.errors import ModelError
from lattice_core.types import LowRankUpdate, RowInput, TensorData, TensorSpec, Want
from lattice_safetensors.adapter_loader import open_adapter
from lattice_safetensors.loader import SafetensorsLoader
from tests.mlx.naive_llama import DATA

ADAPTERS = DATA / "adapters"
BASES = {
    "llama-qv": "tiny-llama-tied-f32",
    "llama-all-linear": "tiny-llama-tied-f32",
    "llama-rslora": "tiny-llama-tied-f32",
    "llama-patterns": "tiny-llama-tied-f32",
    "qwen35-text": "tiny-qwen35-nested-bf16",
    "qwen35-wrapper": "tiny-qwen35-nested-bf16",
    "qwen35moe": "tiny-qwen35moe-untied-f32",
    "mlx-llama": "tiny-llama-tied-bf16",
    "mlx-qwen35": "mlx-qwen35-4bit",
}
BOUND = 1e-3


def merged(name):
    with np.load(ADAPTERS / name / "merged.npz") as archive:
        return dict(archive)


def prompt(name):
    return tuple(merged(name)["prompt_ids"].tolist())


@pytest.fixture
def adapted(models):
    """A base with resident adapters, which are freed afterwards."""
    made = []

    def get(base, *names):
        model = models(base)
        ids = [model.load_adapter(open_adapter(ADAPTERS / name)) for name in names]
        made.extend((model, adapter) for adapter in ids)
        return model, ids

    yield get
    for model, adapter in made:
        model.unload_adapter(adapter)


@pytest.mark.parametrize("name", BASES)
def test_logits_equal_those_of_merged_weights(name, adapted):
    model, [adapter] = adapted(BASES[name], name)
    expected = merged(name)
    state = model.new_state()
    logits = model.read_logits(model.forward([RowInput(state, prompt(name), Want.ALL, adapter)]).array)
    difference = np.abs(logits - expected["logits"]).max()
    print(f"{name}: max abs logit difference {difference:.2e}")
    assert difference < BOUND
    found = [int(logits[-1].argmax())]
    while len(found) < len(expected["greedy_ids"]):
        logits = model.read_logits(model.forward([RowInput(state, (found[-1],), Want.LAST, adapter)]).array)
        found.append(int(logits[0].argmax()))
    assert found == expected["greedy_ids"].tolist()
    assert model.adapter_bytes(adapter) > 0


def run(model, rows, tokens=8):
    """Greedy tokens of rows (prompt, adapter) in one batch."""
    states = [model.new_state() for _ in rows]
    plan = [RowInput(state, ids, Want.LAST, adapter) for state, (ids, adapter) in zip(states, rows, strict=True)]
    found = [[] for _ in rows]
    for _ in range(tokens):
        logits = model.read_logits(model.forward(plan).array)
        for tokens_of_row, row in zip(found, logits, strict=True):
            tokens_of_row.append(int(row.argmax()))
        plan = [
            RowInput(state, (ids[-1],), Want.LAST, adapter)
            for state, ids, (_, adapter) in zip(states, found, rows, strict=True)
        ]
    model.release(states)
    return found


@pytest.mark.parametrize(
    "names", [("llama-qv", "llama-all-linear", "llama-rslora"), ("qwen35-text", "qwen35-wrapper")], ids=["llama", "qwen35"]
)
def test_several_adapters_and_none_in_one_batch_equal_separate_runs(names, adapted):
    model, ids = adapted(BASES[names[0]], *names)
    rows = [(prompt(names[0])[: 10 + 7 * place], adapter) for place, adapter in enumerate([*ids, None, ids[0]])]
    alone = [run(model, [row])[0] for row in rows]
    assert run(model, rows) == alone
    assert len({tuple(tokens) for tokens in alone}) > 2


def test_an_unloaded_adapter_is_unknown_and_the_others_stay(models):
    model = models("tiny-llama-tied-f32")
    first, second = (model.load_adapter(open_adapter(ADAPTERS / name)) for name in ("llama-qv", "llama-rslora"))
    before = run(model, [(prompt("llama-qv"), second), (prompt("llama-qv"), None)])
    run(model, [(prompt("llama-qv"), first), (prompt("llama-qv"), second)])
    model.unload_adapter(first)
    with pytest.raises(KeyError, match="is not loaded"):
        model.forward([RowInput(model.new_state(), (1, 2), Want.LAST, first)])
    with pytest.raises(KeyError):
        model.unload_adapter(first)
    assert run(model, [(prompt("llama-qv"), second), (prompt("llama-qv"), None)]) == before
    model.unload_adapter(second)


class Fake:
    """An adapter of one module with plain float32 factors."""

    format, nbytes, fingerprint = "fake", 0, "fake"

    def __init__(self, module, a, b):
        self._module, self._shapes = module, (a, b)

    def updates(self):
        parts = [
            TensorData(TensorSpec(f"{self._module}.{letter}", "F32", shape), memoryview(np.ones(shape, np.float32)).cast("B"))
            for letter, shape in zip("AB", self._shapes, strict=True)
        ]
        return {self._module: LowRankUpdate(*parts, 1.0)}

    def close(self):
        pass


@pytest.mark.parametrize(
    ("base", "module", "a", "b", "message"),
    [
        ("tiny-llama-tied-f32", "layers.9.self_attn.q_proj", (2, 96), (96, 2), "does not have: layers.9.self_attn.q_proj"),
        ("tiny-llama-tied-f32", "embed_tokens", (2, 96), (512, 2), "does not have: embed_tokens"),
        ("tiny-llama-tied-f32", "layers.0.self_attn.q_proj", (2, 7), (96, 2), r"A of layers.0.self_attn.q_proj .* is \[2, 7\]"),
        ("tiny-llama-tied-f32", "layers.0.self_attn.q_proj", (2, 96), (7, 2), r"B of layers.0.self_attn.q_proj .* is \[7, 2\]"),
        ("tiny-qwen35moe-untied-f32", "layers.0.mlp.experts.1.up_proj", (2, 64), (48, 2), "experts are not supported"),
        ("tiny-qwen35moe-untied-f32", "layers.0.mlp.gate", (2, 64), (6, 2), "routers are not supported"),
    ],
)
def test_what_does_not_fit_is_refused_by_name_with_nothing_loaded(models, base, module, a, b, message):
    model = models(base)
    with pytest.raises(ModelError, match=message):
        model.load_adapter(Fake(module, a, b))
    assert model._bank._adapters == {}


def test_a_rotated_model_takes_no_adapters(loaded):
    checkpoint = SafetensorsLoader(Settings()).open(DATA / "tiny-llama-tied-f32")
    checkpoint.config = {**checkpoint.config, "quarot_rotation_seed": 7}
    model = loaded(checkpoint)
    with pytest.raises(ModelError, match=r"weights are rotated \(QuaRot\).*use the plain model"):
        model.load_adapter(open_adapter(ADAPTERS / "llama-qv"))
