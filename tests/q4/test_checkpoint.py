"""Opening sound KHQ4 directories: tensors, names with and without an index, text beside them, bounded memory."""

import json
import logging
import shutil
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lattice_core.errors import ModelError
from lattice_core.types import AffineQuantization, TensorSpec
from lattice_q4 import khq4
from lattice_q4.loader import Q4Loader
from tests.q4.damage import PACKED, PACKED_FILE, change_json, overwrite_block
from tests.q4.plain_decoder import decoded_file, decoded_tensor
from tests.q4.q4_directory import DATA, INDEX, NESTED, TIED, UNTIED, converted, weights, write

MODELS = sorted(path.name for path in DATA.glob("tiny-*"))
EXPERTS = "tiny-qwen35moe-untied-bf16"


def single(directory, values, *, symmetric=False, name="lm_head.weight"):
    """A directory of one packed tensor."""
    directory.mkdir(exist_ok=True)
    (directory / f"{khq4.mangled(name)}.q4").write_bytes(khq4.encode(values, symmetric=symmetric))
    (directory / "config.json").write_text('{"tie_word_embeddings": false}')
    return directory


@pytest.mark.parametrize("index", [True, False])
@pytest.mark.parametrize("model", MODELS)
def test_every_tensor_is_what_its_file_holds(tmp_path, loader, model, index):
    checkpoint = loader.open(write(tmp_path / "model", model, index=index))
    files, entries = converted(model)
    assert set(checkpoint.tensors()) == {entry["name"] for entry in entries}
    for entry in entries:
        tensor = checkpoint.read(entry["name"])
        assert tensor.spec == checkpoint.tensors()[entry["name"]]
        assert tensor.spec.name == entry["name"]
        shape, values = decoded_file(files[entry["file"]])
        assert tensor.spec.shape == shape == weights(model)[entry["name"]].shape
        np.testing.assert_array_equal(
            decoded_tensor(tensor), values.astype(np.float32 if tensor.spec.dtype == "F32" else float)
        )


def test_packed_tensors_travel_packed_with_scales_and_biases_as_stored(tmp_path, loader):
    checkpoint = loader.open(write(tmp_path / "model"))
    tensor = checkpoint.read(PACKED)
    blocks = np.frombuffer(converted(TIED)[0][PACKED_FILE], np.uint8)[36:].reshape(-1, 20)
    shape = weights(TIED)[PACKED].shape
    assert tensor.spec == TensorSpec(PACKED, "U32", shape, AffineQuantization(4, 32, "F16"))
    assert bytes(tensor.data) == blocks[:, 4:].tobytes()
    assert bytes(tensor.scales) == blocks[:, :2].tobytes()
    assert bytes(tensor.biases) == blocks[:, 2:4].tobytes()


def test_small_tensors_are_halves(tmp_path, loader):
    name = "model.layers.0.linear_attn.A_log"
    tensor = loader.open(write(tmp_path / "model")).read(name)
    assert tensor.spec == TensorSpec(name, "F16", weights(TIED)[name].shape)
    assert bytes(tensor.data) == weights(TIED)[name].astype("<f2").tobytes()


def test_stacked_experts_keep_three_dimensions(tmp_path, loader):
    name = "model.layers.0.mlp.experts.gate_up_proj"
    values = weights(EXPERTS)[name]
    tensor = loader.open(write(tmp_path / "model", EXPERTS)).read(name)
    assert len(tensor.spec.shape) == 3
    assert tensor.spec == TensorSpec(name, "U32", values.shape, AffineQuantization(4, 32, "F16"))
    assert tensor.data.nbytes == values.size // 2


@pytest.mark.parametrize("shape", [(2, 33), (1,), (3, 5, 7), (33, 31), (40, 16)])
def test_blocks_that_straddle_rows_are_expanded_to_float32(tmp_path, loader, shape):
    values = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    tensor = loader.open(single(tmp_path, values)).read("lm_head.weight")
    assert tensor.spec == TensorSpec("lm_head.weight", "F32", shape)
    _, expected = decoded_file((tmp_path / "lm_head_weight.q4").read_bytes())
    np.testing.assert_allclose(decoded_tensor(tensor), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("shape", [(32,), (3, 64), (2, 3, 32), (1, 2, 2, 96), (0, 32), (32769, 32)])
def test_blocks_that_keep_to_rows_stay_packed(tmp_path, loader, shape):
    values = np.random.default_rng(2).standard_normal(shape).astype(np.float32)
    tensor = loader.open(single(tmp_path, values)).read("lm_head.weight")
    assert tensor.spec == TensorSpec("lm_head.weight", "U32", shape, AffineQuantization(4, 32, "F16"))
    assert (tensor.data.nbytes, tensor.scales.nbytes, tensor.biases.nbytes) == (
        values.size // 2,
        values.size // 16,
        values.size // 16,
    )
    found = decoded_tensor(tensor)
    assert found.shape == shape
    assert np.abs(found - values).max(initial=0) < 0.5


@given(st.lists(st.integers(1, 48), min_size=1, max_size=3), st.booleans(), st.integers(0, 2**32))
@settings(max_examples=40, deadline=None)
def test_what_is_written_is_read(tmp_path_factory, shape, symmetric, seed):
    values = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    directory = single(tmp_path_factory.mktemp("model"), values, symmetric=symmetric)
    found = decoded_tensor(Q4Loader(None).open(directory).read("lm_head.weight"))
    _, expected = decoded_file((directory / "lm_head_weight.q4").read_bytes())
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)
    shutil.rmtree(directory)


def test_text_comes_from_the_directory(tmp_path, loader):
    directory = write(tmp_path / "model")
    checkpoint = loader.open(directory)
    assert checkpoint.config == json.loads((DATA / TIED / "config.json").read_text())
    assert checkpoint.generation_config == json.loads((DATA / TIED / "generation_config.json").read_text())
    assert checkpoint.tokenizer_json == (DATA / TIED / "tokenizer.json").read_bytes()
    assert checkpoint.chat_template == checkpoint.tokenizer_config["chat_template"]
    assert checkpoint.format == "q4"
    assert checkpoint.nbytes == sum(len(data) for data in converted(TIED)[0].values()) - sum(
        20 + 8 * len(entry["shape"]) for entry in converted(TIED)[1]
    )
    (directory / "chat_template.jinja").write_text("{{ messages }}")
    assert loader.open(directory).chat_template == "{{ messages }}"


def test_only_config_and_tensors_are_needed_to_open(tmp_path, loader):
    directory = write(tmp_path / "model")
    for name in ("generation_config.json", "tokenizer.json", "tokenizer_config.json"):
        (directory / name).unlink()
    checkpoint = loader.open(directory)
    assert (checkpoint.generation_config, checkpoint.tokenizer_config, checkpoint.chat_template) == ({}, {}, None)


def test_an_index_may_be_an_object_with_more_beside_the_tensors(tmp_path, loader):
    directory = write(tmp_path / "model")
    beside = {"quarot_seed": 12648430, "promotion": {"delta": 0.1}, "artifact": "V0Offline", "online": None, "r3": False}
    (directory / INDEX).write_text(json.dumps({**beside, "tensors": converted(TIED)[1]}))
    checkpoint = loader.open(directory)
    assert set(checkpoint.tensors()) == {entry["name"] for entry in converted(TIED)[1]}
    assert checkpoint.config["quarot_rotation_seed"] == 12648430
    change_json(directory / "config.json", quarot_rotation_seed=12648430)
    assert loader.open(directory).config["quarot_rotation_seed"] == 12648430


@pytest.mark.parametrize(
    "beside",
    [
        {"artifact": "V1Online"},
        {"artifact": {"V1Online": {}}},
        {"artifact": {"kind": "v1_online"}},
        {"online_rotations": {"r3_seed": 0}},
        {"rotations": ["R1", "R3"]},
        {"r4": True},
    ],
)
def test_online_rotations_are_refused_however_they_are_declared(tmp_path, loader, beside):
    directory = write(tmp_path / "model")
    (directory / INDEX).write_text(json.dumps({**beside, "tensors": converted(TIED)[1]}))
    with pytest.raises(ModelError, match="rotations that an engine applies while it computes"):
        loader.open(directory)


def test_a_rotated_model_keeps_its_mtp_head_in_halves(tmp_path, loader):
    directory = write(tmp_path / "model", NESTED, index=False, symmetric=True)
    change_json(directory / "config.json", quarot_rotation_seed=7)
    for name, values in weights(NESTED).items():
        packed = directory / f"{khq4.mangled(name)}.q4"
        if name.startswith("mtp.") and packed.exists():
            packed.with_suffix(".f16").write_bytes(khq4.f16_file(values))
            packed.unlink()
    checkpoint = loader.open(directory)
    assert checkpoint.config["quarot_rotation_seed"] == 7
    assert checkpoint.tensors()["mtp.fc.weight"].dtype == "F16"


def test_the_cache_of_the_reference_engine_is_no_tensor(tmp_path, loader):
    directory = write(tmp_path / "model", index=False)
    (directory / "merged_qkvz_0_192_128.q4").write_bytes(b"stale")
    assert set(loader.open(directory).tensors()) == {entry["name"] for entry in converted(TIED)[1]}


def test_an_index_names_tensors_that_file_names_cannot_tell(tmp_path, loader):
    directory = write(tmp_path / "model")
    (directory / "parts").mkdir()
    (directory / PACKED_FILE).rename(directory / "parts" / "unnamed.q4")
    entries = json.loads((directory / INDEX).read_text())
    next(entry for entry in entries if entry["name"] == PACKED)["file"] = "parts/unnamed.q4"
    (directory / INDEX).write_text(json.dumps(entries))
    assert loader.open(directory).read(PACKED).data.nbytes == weights(TIED)[PACKED].size // 2


def test_files_that_the_index_does_not_list_are_read_and_that_is_said(tmp_path, loader, caplog):
    directory = write(tmp_path / "model")
    entries = [entry for entry in converted(TIED)[1] if entry["name"] != PACKED]
    (directory / INDEX).write_text(json.dumps(entries))
    with caplog.at_level(logging.WARNING, logger="lattice.q4"):
        assert PACKED in loader.open(directory).tensors()
    assert f"does not list 1 of the tensor files, such as {PACKED_FILE}" in caplog.text


@pytest.mark.parametrize(("outer", "nested", "opens"), [(False, True, False), (True, False, True), (None, True, True)])
def test_the_flag_at_the_top_level_says_whether_embeddings_are_tied(tmp_path, loader, outer, nested, opens):
    directory = write(tmp_path / "model", NESTED)
    config = json.loads((directory / "config.json").read_text())
    config["tie_word_embeddings"] = outer
    config["text_config"]["tie_word_embeddings"] = nested
    (directory / "config.json").write_text(json.dumps(config))
    if opens:
        assert "model.language_model.embed_tokens.weight" in loader.open(directory).tensors()
    else:
        with pytest.raises(ModelError, match=r"tie_word_embeddings is false, but the directory holds no lm_head\.weight"):
            loader.open(directory)


def test_code_named_by_a_configuration_is_not_run_and_that_is_said(tmp_path, loader, caplog):
    directory = write(tmp_path / "model")
    change_json(directory / "config.json", auto_map={"AutoModel": "evil.Model"})
    loader.open(directory)
    assert "asks for code of its own (auto_map), which is never run" in caplog.text


def test_a_file_that_changes_after_opening_is_refused(tmp_path, loader):
    directory = write(tmp_path / "model")
    checkpoint = loader.open(directory)
    (directory / PACKED_FILE).write_bytes(khq4.encode(np.zeros((8, 32), np.float32)))
    with pytest.raises(ModelError, match=f"{PACKED_FILE}: has changed since the model was opened"):
        checkpoint.read(PACKED)


def test_unknown_tensors_and_reads_after_closing_are_refused(tmp_path, loader):
    checkpoint = loader.open(write(tmp_path / "model"))
    kept = checkpoint.read(PACKED)
    with pytest.raises(ModelError, match=r"has no tensor 'model\.nowhere'"):
        checkpoint.read("model.nowhere")
    checkpoint.close()
    with pytest.raises(ModelError, match="is read after the model was closed"):
        checkpoint.read(PACKED)
    assert decoded_tensor(kept).shape == weights(TIED)[PACKED].shape


@pytest.mark.parametrize("shape", [(1 << 15, 64), (1 << 16, 31)])
def test_a_damaged_block_is_counted_from_the_begin_of_the_file(tmp_path, loader, shape):
    path = single(tmp_path, np.ones(shape, np.float32)) / "lm_head_weight.q4"
    overwrite_block(path, 40000, bias=np.nan)
    with pytest.raises(ModelError, match=r"block 40000 has the scale 1\.0 and the bias nan"):
        loader.open(tmp_path).read("lm_head.weight")


@pytest.mark.parametrize("name", ["nowhere", "model/config.json"])
def test_what_is_no_directory_is_refused(tmp_path, loader, name):
    write(tmp_path / "model", UNTIED)
    with pytest.raises(ModelError, match=r"no such directory|name the directory"):
        loader.open(tmp_path / name)


@pytest.mark.parametrize("rows", [(1 << 14), (1 << 14) - 1])
def test_reading_holds_no_more_than_what_it_hands_out(tmp_path, loader, rows):
    values = np.random.default_rng(3).standard_normal((rows, 1024)).astype(np.float32)
    checkpoint = loader.open(single(tmp_path, values))
    del values
    tracemalloc.start()
    try:
        for _ in range(3):
            tensor = checkpoint.read("lm_head.weight")
            handed_out = tensor.data.nbytes + tensor.scales.nbytes + tensor.biases.nbytes
            del tensor
        _, peak = tracemalloc.get_traced_memory()
        left, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert handed_out == rows * 1024 // 32 * 20
    assert peak < handed_out + (4 << 20)
    assert left < 1 << 20
