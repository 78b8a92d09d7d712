"""A quantised directory gives the logits of a float32 model whose weights are what an independent decoder reads from it."""

import json

import numpy as np
import pytest

from lattice_core.descriptors import Settings
from lattice_core.types import Limits, RowInput, Want
from lattice_mlx.backend import MlxBackend
from tests.gguf.hf_model import HfModel, fixture, references
from tests.q4.plain_decoder import decoded_file
from tests.q4.q4_directory import DATA, INDEX
from tests.q4.quantized import made, mlx_values, opened

MODELS = sorted(path.name for path in DATA.glob("tiny-*"))
BOUND = 1e-3


def logits_of(checkpoint, ids, **options):
    model = MlxBackend(Settings(own=options)).load(checkpoint, Limits(), lambda _done, _total: None)
    logits = model.forward([RowInput(model.new_state(), tuple(int(token) for token in ids), Want.ALL)]).array
    model.launch([logits])
    return model.read_logits(logits)


def plain(name):
    """A stored name below the decoder's prefix, whatever that is."""
    for prefix in ("language_model.model.", "model.language_model.", "model."):
        if name.startswith(prefix):
            return name[len(prefix) :]
    return name.removeprefix("language_model.")


def decoded_q4(directory):
    entries = json.loads((directory / INDEX).read_text())
    return {plain(entry["name"]): decoded_file((directory / entry["file"]).read_bytes())[1] for entry in entries}


def decoded_mlx(directory):
    """The packed tensors only; stacks of experts also as the fused ones of the published layout."""
    values, packed = mlx_values(directory, json.loads((directory / "config.json").read_text()))
    found = {plain(name): values[name] for name in packed}
    stacks = {plain(name): array for name, array in values.items() if ".switch_mlp." in name}
    for name in [name for name in stacks if name.endswith("gate_proj.weight")]:
        block = name.removesuffix("switch_mlp.gate_proj.weight")
        gate, up, down = (stacks[f"{block}switch_mlp.{kind}_proj.weight"] for kind in ("gate", "up", "down"))
        found[f"{block}experts.gate_up_proj"] = np.concatenate([gate, up], axis=1)
        found[f"{block}experts.down_proj"] = down
    return found


def with_weights(model, decoded):
    """The original in float32, with the weights that the quantised copy holds; and how many of them differ."""
    tensors, differing = {}, 0
    for name, values in model.tensors_by_name.items():
        short = plain(name)
        kept = decoded.get(short)
        block, separator, rest = short.partition(".experts.")
        if kept is None and separator and rest[0].isdigit():
            number, kind, _ = rest.split(".", 2)
            if kind == "down_proj":
                kept = decoded[f"{block}.experts.down_proj"][int(number)]
            else:
                both = decoded[f"{block}.experts.gate_up_proj"][int(number)]
                inner = len(both) // 2
                kept = both[:inner] if kind == "gate_proj" else both[inner:]
        tensors[name] = values if kept is None else np.asarray(kept, np.float32)
        assert tensors[name].shape == values.shape
        differing += bool((tensors[name] != values).any())
    return HfModel(model.config, tensors), differing


@pytest.mark.parametrize("dequantize", ["always", "never"])
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    ("kind", "scheme"),
    [
        ("q4", {}),
        ("mlx", {"group_size": 32}),
        ("mlx", {"bits": 8}),
        ("mlx", {"bits": 3, "group_size": 64}),
    ],
    ids=["q4", "mlx-4-32", "mlx-8-64", "mlx-3-64"],
)
def test_logits_equal_those_of_the_decoded_weights(tmp_path, model, kind, scheme, dequantize):
    target = made(DATA / model, tmp_path / "out", kind, **scheme)
    original, reference = fixture(model), references(model)
    decoded = decoded_q4(target) if kind == "q4" else decoded_mlx(target)
    expected, differing = with_weights(original, decoded)
    assert differing > 1
    ids = reference["prompt_ids"]
    ours, theirs = logits_of(opened(target, kind), ids, dequantize=dequantize), logits_of(expected, ids)
    difference = np.abs(ours - theirs).max()
    print(f"max abs logit difference {difference:.2e}; to the original {np.abs(ours - reference['logits']).max():.2e}")
    assert difference < BOUND
    assert (ours.argmax(-1) == theirs.argmax(-1)).all()


@pytest.mark.parametrize("model", MODELS)
def test_eight_bits_stay_near_the_original(tmp_path, model):
    target = made(DATA / model, tmp_path / "out", "mlx", bits=8, group_size=32)
    reference = references(model)
    ours = logits_of(opened(target, "mlx"), reference["prompt_ids"])
    spread = reference["logits"].std()
    error = np.sqrt(np.square(ours - reference["logits"]).mean())
    print(f"root mean square error {error:.3f} of a spread of {spread:.2f}")
    assert error < spread / 4
