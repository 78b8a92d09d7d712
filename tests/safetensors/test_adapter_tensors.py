"""What every tensor of an adapter is checked for, in both notations, and the fingerprint of them all."""

import json
import struct
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lattice_core.errors import ModelError
from lattice_safetensors.adapter_keys import pair_keys
from lattice_safetensors.adapter_loader import open_adapter
from tests.safetensors.adapter_writer import matrix, mlx_tensors, peft_tensors, write_bare, write_mlx, write_peft

NAMES = st.lists(
    st.tuples(
        st.integers(0, 99),
        st.sampled_from(["self_attn", "mlp", "linear_attn", "mlp.shared_expert", "mlp.experts.3"]),
        st.sampled_from(["q_proj", "gate_proj", "in_proj_qkv", "down_proj"]),
    ).map(lambda parts: "layers.{}.{}.{}".format(*parts)),
    min_size=1,
    max_size=8,
    unique=True,
)
WRAPPERS = st.lists(st.sampled_from(["model", "language_model", "base_model"]), max_size=4)
BUILDERS = {"PEFT": (peft_tensors, write_peft), "MLX": (mlx_tensors, write_mlx)}


@pytest.fixture(params=list(BUILDERS))
def built(request):
    """The names of A and B, tensors, and what writes them as a directory."""
    tensors, write = BUILDERS[request.param]
    made = tensors()
    return (*made, made, write)


def refused(path, said):
    with pytest.raises(ModelError, match=said) as raised:
        open_adapter(path)
    assert ".safetensors: " in raised.value.message


def test_a_factor_without_its_partner_is_refused(tmp_path, built):
    a, b, tensors, write = built
    refused(write(tmp_path, {a: tensors[a]}), f"tensor '{a}' is A of 'layers.0.self_attn.q_proj', whose B is missing")
    refused(write(tmp_path, {b: tensors[b]}), f"tensor '{b}' is B of 'layers.0.self_attn.q_proj', whose A is missing")


def test_an_orphan_beside_whole_pairs_is_refused_too(tmp_path, built):
    a, _, tensors, write = built
    orphan = a.replace("q_proj", "v_proj")
    refused(write(tmp_path, tensors | {orphan: tensors[a]}), f"tensor '{orphan}' is A of .*v_proj', whose B is missing")


def test_factors_of_different_ranks_are_refused(tmp_path):
    a, b = peft_tensors()
    refused(
        write_peft(tmp_path / "peft", {a: matrix("F32", 4, 6), b: matrix("F32", 10, 5)}),
        rf"tensors '{a}' \[4, 6\] and '{b}' \[10, 5\] do not fit: ranks 4 and 5",
    )
    a, b = mlx_tensors()
    refused(
        write_mlx(tmp_path / "mlx", {a: matrix("F32", 6, 4), b: matrix("F32", 5, 10)}),
        rf"tensors '{a}' \[6, 4\] and '{b}' \[5, 10\] do not fit: ranks 4 and 5",
    )


@pytest.mark.parametrize("shape", [(), (24,), (2, 3, 4), (1, 2, 3, 4)])
def test_what_is_no_matrix_is_refused(tmp_path, built, shape):
    a, _, tensors, write = built
    refused(write(tmp_path, tensors | {a: matrix("F32", *shape)}), rf"tensor '{a}' is \[.*\], no matrix")


@pytest.mark.parametrize("shape", [(0, 6), (4, 0), (0, 0)])
def test_an_empty_matrix_is_refused(tmp_path, built, shape):
    a, _, tensors, write = built
    refused(write(tmp_path, tensors | {a: matrix("F32", *shape)}), rf"tensor '{a}' is \[.*\]: an empty matrix")


@pytest.mark.parametrize("dtype", ["I64", "U8", "U32"])
def test_other_dtypes_are_refused(tmp_path, built, dtype):
    a, _, tensors, write = built
    stored = (dtype, (4, 6), bytes(24 * {"I64": 8, "U8": 1, "U32": 4}[dtype]))
    refused(write(tmp_path, tensors | {a: stored}), f"tensor '{a}' is {dtype}; adapters are F32, F16, BF16")


@pytest.mark.parametrize("dtype", ["F32", "F16", "BF16"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_number_that_is_not_finite_is_refused_with_its_place(tmp_path, built, dtype, bad):
    _, b, tensors, write = built
    shape = tensors[b][1]
    values = np.zeros(shape, "<f4")
    values[2, 3] = bad
    stored = (values.view("<u4") >> 16).astype("<u2") if dtype == "BF16" else values.astype({"F32": "<f4", "F16": "<f2"}[dtype])
    changed = tensors | {b: (dtype, shape, stored.tobytes())}
    refused(write(tmp_path, changed), rf"tensor '{b}' is infinite or not a number at \[2, 3\]")


def test_a_rank_above_4096_is_refused(tmp_path):
    tensors = peft_tensors(rank=4097, width=1, out=1)
    refused(write_bare(tmp_path, tensors), "has the rank 4097; at most 4096 are supported")
    assert open_adapter(write_bare(tmp_path, peft_tensors(rank=4096, width=1, out=1))).updates()


def test_a_file_above_10_gib_is_refused_unread(tmp_path):
    size = (10 << 30) + 4
    header = {next(iter(peft_tensors())): {"dtype": "F32", "shape": [1, size // 4], "data_offsets": [0, size]}}
    text = json.dumps(header).encode()
    path = tmp_path / "large.safetensors"
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + size)  # a hole: no disk is used
    refused(path, f"holds {size} bytes; adapters of at most {10 << 30} are opened")


def test_a_file_without_lora_tensors_is_refused(tmp_path):
    refused(write_bare(tmp_path, {}), r"holds no LoRA tensors: neither PEFT's \(...lora_A.weight\) nor MLX's \(...lora_a\)")


def test_both_notations_in_one_file_are_refused(tmp_path):
    tensors = peft_tensors() | mlx_tensors("model.layers.1.self_attn.q_proj")
    refused(write_bare(tmp_path, tensors), "mixes PEFT's names .* with MLX's")


@pytest.mark.parametrize("path", ["", "model.", "base_model.model.model."])
def test_a_factor_of_no_module_is_refused(tmp_path, path):
    refused(write_bare(tmp_path, {f"{path}model.lora_A.weight": matrix("F32", 4, 6)}), "names no module")


def test_a_long_name_is_shown_short(tmp_path):
    with pytest.raises(ModelError) as raised:
        open_adapter(write_bare(tmp_path, {"x" * 10_000: matrix("F32", 1)}))
    assert len(raised.value.message) < 400 + len(str(tmp_path))


# ---------------------------------------------------------------------------------------------- names


@settings(deadline=None)
@given(modules=NAMES, wrappers=WRAPPERS, peft=st.booleans())
def test_any_wrappers_around_the_decoder_give_the_same_modules(modules, wrappers, peft):
    endings = ("lora_A.weight", "lora_B.weight") if peft else ("lora_a", "lora_b")
    prefix = "".join(f"{part}." for part in (["base_model", "model"] if peft else []) + wrappers)
    keys = pair_keys([f"{prefix}{module}.{ending}" for module in modules for ending in endings], Path("file"))
    assert list(keys.pairs) == sorted(modules)
    assert keys.notation == ("PEFT" if peft else "MLX")
    assert all(pair.a == f"{prefix}{module}.{endings[0]}" for module, pair in keys.pairs.items())
    assert all(pair.b == f"{prefix}{module}.{endings[1]}" for module, pair in keys.pairs.items())


# ---------------------------------------------------------------------------------------------- fingerprint


def fingerprint(tensors, **fields):
    with tempfile.TemporaryDirectory() as directory:
        return open_adapter(write_peft(Path(directory), tensors, **fields)).fingerprint


def test_the_fingerprint_is_that_of_the_effect_not_of_the_file():
    tensors = peft_tensors()
    same = fingerprint(tensors)
    assert same == fingerprint(tensors)
    assert same == fingerprint(dict(reversed(tensors.items())))
    assert same == fingerprint(peft_tensors("model.language_model.layers.0.self_attn.q_proj"))
    assert same == fingerprint(tensors, target_modules=["q_proj", "v_proj"], lora_dropout=0.5)


def test_the_fingerprint_changes_with_scale_module_shape_dtype_and_every_matrix():
    a, b = tensors = peft_tensors()
    flipped = ("F32", (4, 6), bytes([tensors[a][2][0] ^ 1]) + tensors[a][2][1:])
    found = [
        fingerprint(tensors),
        fingerprint(tensors, lora_alpha=9),
        fingerprint(tensors, use_rslora=True),
        fingerprint(peft_tensors("model.layers.0.self_attn.k_proj")),
        fingerprint(tensors | {a: flipped}),
        fingerprint(tensors | {b: ("F32", (10, 4), tensors[b][2][::-1])}),
        fingerprint({a: ("F32", (4, 6), bytes(96)), b: ("F32", (10, 4), bytes(160))}),
        fingerprint({a: ("F32", (4, 10), bytes(160)), b: ("F32", (6, 4), bytes(96))}),
        fingerprint({a: ("F16", (4, 12), bytes(96)), b: ("F32", (10, 4), bytes(160))}),
        fingerprint({a: ("BF16", (4, 12), bytes(96)), b: ("F32", (10, 4), bytes(160))}),
    ]
    assert len(set(found)) == len(found)
