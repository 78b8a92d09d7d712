"""What ``lattice quantize --format q4`` writes: the files, their names and bytes; what it refuses to write."""

import json
import re
import shutil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lattice_core.errors import ModelError
from lattice_q4 import khq4, source_tensors
from tests.gguf.hf_model import HfModel, fixture
from tests.q4.plain_decoder import decoded_tensor
from tests.q4.q4_directory import DATA, INDEX, NESTED, TIED, converted, weights, write
from tests.q4.quantized import made, opened
from tests.safetensors.safetensors_writer import document, tensors_of

SINGLE_EXPERTS = "tiny-qwen35moe-untied-f32"
MODELS = sorted(path.name for path in DATA.glob("tiny-*") if path.name != SINGLE_EXPERTS)


def stored(directory):
    """File name to bytes of the tensors, and the index."""
    files = {path.name: path.read_bytes() for path in directory.iterdir() if path.suffix in (".q4", ".f16")}
    return files, json.loads((directory / INDEX).read_text())


def arrays(tensors, **config):
    """A checkpoint of arrays that is complete enough to be quantised."""
    return HfModel({**fixture(TIED).config, "tie_word_embeddings": True, **config}, tensors)


@pytest.mark.parametrize("model", MODELS)
def test_every_tensor_becomes_the_file_that_the_codec_makes_of_it(tmp_path, model):
    files, entries = stored(made(DATA / model, tmp_path / "out", "q4"))
    expected_files, expected_entries = converted(model)
    assert files == expected_files
    assert entries == expected_entries


def test_experts_that_are_stored_one_by_one_become_stacks_with_the_gate_rows_first(tmp_path):
    files, entries = stored(made(DATA / SINGLE_EXPERTS, tmp_path / "out", "q4"))
    found = weights(SINGLE_EXPERTS)
    block = "model.layers.2.mlp.experts"
    single = {kind: [found[f"{block}.{number}.{kind}_proj.weight"] for number in range(6)] for kind in ("gate", "up", "down")}
    gate_up = np.stack([np.concatenate(pair) for pair in zip(single["gate"], single["up"], strict=True)])
    assert files["model_layers_2_mlp_experts_gate_up_proj.q4"] == khq4.encode(gate_up)
    assert files["model_layers_2_mlp_experts_down_proj.q4"] == khq4.encode(np.stack(single["down"]))
    assert not [entry["name"] for entry in entries if re.search(r"experts\.\d", entry["name"])]
    shapes = {entry["name"]: tuple(entry["shape"]) for entry in entries}
    assert shapes[f"{block}.gate_up_proj"] == gate_up.shape


def test_the_configuration_is_kept_as_it_is(tmp_path):
    target = made(DATA / NESTED, tmp_path / "out", "q4")
    assert json.loads((target / "config.json").read_text()) == json.loads((DATA / NESTED / "config.json").read_text())


def test_what_is_left_out_is_said(tmp_path, capsys):
    made(DATA / NESTED, tmp_path / "out", "q4")
    towers = [name for name in weights(NESTED) if name.startswith("model.visual.")]
    assert f"{len(towers)} tensors are left out: {towers[0]}, " in capsys.readouterr().err


@pytest.mark.parametrize("piece", [32, 96, 100, 1 << 22])
def test_the_size_of_the_pieces_changes_nothing(tmp_path, monkeypatch, piece):
    monkeypatch.setattr(source_tensors, "PIECE", piece)
    tensors = {
        "model.embed_tokens.weight": np.random.default_rng(1).standard_normal((7, 33)).astype(np.float32),
        "model.norm.weight": np.random.default_rng(2).standard_normal(301).astype(np.float32),
    }
    files, _ = stored(made(DATA / TIED, tmp_path / "out", "q4", checkpoint=arrays(tensors)))
    assert files["model_embed_tokens_weight.q4"] == khq4.encode(tensors["model.embed_tokens.weight"])
    assert files["model_norm_weight.f16"] == khq4.f16_file(tensors["model.norm.weight"])


@settings(max_examples=25, deadline=None)
@given(
    rows=st.integers(1, 9),
    width=st.integers(1, 70),
    inner=st.integers(1, 5),
    experts=st.integers(1, 3),
    piece=st.sampled_from([32, 64, 1 << 22]),
    seed=st.integers(0, 99),
)
def test_any_shape_is_read_back_within_half_a_step(tmp_path_factory, rows, width, inner, experts, piece, seed):
    random = np.random.default_rng(seed)
    shapes = {"model.embed_tokens.weight": (rows, width), "model.layers.0.self_attn.q_proj.weight": (width, rows)}
    for number in range(experts):
        for kind, shape in (("gate", (inner, width)), ("up", (inner, width)), ("down", (width, inner))):
            shapes[f"model.layers.0.mlp.experts.{number}.{kind}_proj.weight"] = shape
    tensors = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source_tensors, "PIECE", piece)
        target = made(DATA / TIED, tmp_path_factory.mktemp("any") / "out", "q4", checkpoint=arrays(tensors))
    experts_of = [
        [tensors.pop(f"model.layers.0.mlp.experts.{number}.{kind}_proj.weight") for kind in ("gate", "up", "down")]
        for number in range(experts)
    ]
    tensors["model.layers.0.mlp.experts.gate_up_proj"] = np.stack([np.concatenate(three[:2]) for three in experts_of])
    tensors["model.layers.0.mlp.experts.down_proj"] = np.stack([three[2] for three in experts_of])
    checkpoint = opened(target, "q4")
    assert set(checkpoint.tensors()) == set(tensors)
    for name, values in tensors.items():
        found = decoded_tensor(checkpoint.read(name))
        assert found.shape == values.shape
        # Half a step of the widest block, and what rounding scale and bias to halves adds.
        assert np.abs(found - values).max() <= (values.max() - values.min()) / 30 * 1.02 + 2e-3


def changed(directory, change, model=TIED, **config):
    """A copy of a model with other tensors; ``change`` takes and alters name to (dtype, shape, bytes)."""
    shutil.copytree(DATA / model, directory)
    tensors = tensors_of(directory / "model.safetensors")
    change(tensors)
    (directory / "model.safetensors").write_bytes(document(tensors))
    written = json.loads((directory / "config.json").read_text()) | config
    (directory / "config.json").write_text(json.dumps(written))
    return directory


EMBEDDING, NORM, DOWN = "model.embed_tokens.weight", "model.norm.weight", "model.layers.1.mlp.down_proj.weight"


@pytest.mark.parametrize("kind", ["q4", "mlx"])
def test_a_tied_model_whose_head_is_a_copy_of_the_embedding_loses_the_copy(tmp_path, kind, capsys):
    source = changed(tmp_path / "source", lambda tensors: tensors.update({"lm_head.weight": tensors[EMBEDDING]}))
    target = made(source, tmp_path / "out", kind)
    plain = made(DATA / TIED, tmp_path / "plain", kind)
    assert {path.name: path.read_bytes() for path in target.iterdir()} == {
        path.name: path.read_bytes() for path in plain.iterdir()
    }
    assert "1 tensor is left out: lm_head.weight" in capsys.readouterr().err


def other_head(tensors):
    dtype, shape, data = tensors[EMBEDDING]
    tensors["lm_head.weight"] = (dtype, shape, data[:-2] + b"\x80\x3f")


def narrow_head(tensors):
    dtype, (rows, width), data = tensors[EMBEDDING]
    tensors["lm_head.weight"] = (dtype, (rows - 1, width), data[: -2 * width])


def not_a_number(name):
    def change(tensors):
        dtype, shape, data = tensors[name]
        tensors[name] = (dtype, shape, data[:-2] + b"\xc0\x7f")

    return change


def beyond_half(tensors):
    dtype, shape, data = tensors[NORM]
    tensors[NORM] = (dtype, shape, data[:-2] + b"\x80\x7e")


def integers(tensors):
    _, shape, data = tensors[DOWN]
    tensors[DOWN] = ("I16", shape, data)


@pytest.mark.parametrize("kind", ["q4", "mlx"])
@pytest.mark.parametrize(
    ("change", "config", "message"),
    [
        (other_head, {}, "tie_word_embeddings is true, but the model holds lm_head.weight with other numbers"),
        (narrow_head, {}, "tie_word_embeddings is true, but the model holds lm_head.weight with other numbers"),
        (
            lambda _: None,
            {"tie_word_embeddings": False},
            "tie_word_embeddings is not true, but the model holds no lm_head.weight",
        ),
        (not_a_number(DOWN), {}, f"{DOWN}.* not finite"),
        (integers, {}, f"{DOWN} is I16; only F32, F16, BF16"),
    ],
)
def test_a_model_that_cannot_be_quantised_is_refused_and_leaves_nothing(tmp_path, kind, change, config, message):
    source = changed(tmp_path / "source", change, **config)
    with pytest.raises(ModelError, match=message) as refused:
        made(source, tmp_path / "out", kind)
    assert "\n" not in refused.value.message
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


@pytest.mark.parametrize(("change", "message"), [(beyond_half, "65504"), (not_a_number(NORM), "not finite")])
def test_small_tensors_that_a_half_cannot_hold_are_refused(tmp_path, change, message):
    with pytest.raises(ModelError, match=f"{re.escape(NORM)}: .*{message}"):
        made(changed(tmp_path / "source", change), tmp_path / "out", "q4")


def test_experts_with_a_gap_are_refused(tmp_path):
    name = "model.layers.1.mlp.experts.3.up_proj.weight"
    source = changed(tmp_path / "source", lambda tensors: tensors.pop(name), SINGLE_EXPERTS)
    with pytest.raises(ModelError, match=r"model.layers.1.mlp.experts: the 6 experts are not complete"):
        made(source, tmp_path / "out", "q4")


@pytest.mark.parametrize("kind", ["q4", "mlx"])
def test_a_quantised_model_is_refused(tmp_path, kind):
    with pytest.raises(ModelError, match=r"is quantised already .*: quantise the original model"):
        made(DATA / "mlx-llama-4bit", tmp_path / "out", kind)
    source = write(tmp_path / "q4")
    with pytest.raises(ModelError, match=r"is quantised already .q4.: quantise the original model"):
        made(source, tmp_path / "out", kind, checkpoint=opened(source, "q4"))


def test_a_model_that_mlx_converted_is_refused(tmp_path):
    tensors = {
        name: values.transpose(0, 2, 1) if name.endswith("conv1d.weight") else values for name, values in weights(TIED).items()
    }
    with pytest.raises(ModelError, match=r"conv1d.weight is .*, 1., as MLX and GGUF models have it"):
        made(DATA / TIED, tmp_path / "out", "q4", checkpoint=arrays(tensors))
