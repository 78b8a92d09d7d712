"""Arithmetic in bfloat16: no further from the float32 reference than transformers is on the same weights.

A maximum over logits is noise (one token that a router sends elsewhere decides it): the mean is bounded, both are printed.
``bf16-reference.npz`` holds what transformers gives.
"""

import numpy as np
import pytest

from lattice_core.descriptors import Settings
from lattice_core.types import Limits
from lattice_safetensors.loader import SafetensorsLoader
from tests.mlx.naive_llama import DATA

NAMES = tuple(sorted(path.parent.name for path in DATA.glob("tiny-*/reference.npz")))


@pytest.mark.parametrize("name", NAMES)
def test_the_error_is_at_most_half_again_that_of_transformers(name, loaded, feed):
    model = loaded(SafetensorsLoader(Settings()).open(DATA / name), Limits(dtype="bfloat16"))
    assert model.info.dtype == "bfloat16"
    with np.load(DATA / name / "reference.npz") as reference, np.load(DATA / "bf16-reference.npz") as theirs:
        ours = np.abs(feed(model, model.new_state(), reference["prompt_ids"]) - reference["logits"])
        other = np.abs(theirs[f"{name}/logits"] - reference["logits"])
    ratios = ours.mean() / other.mean(), ours.max() / other.max()
    print(f"{name}: mean {ours.mean():.4f} ({ratios[0]:.2f} of transformers), max {ours.max():.3f} ({ratios[1]:.2f})")
    assert ratios[0] <= 1.5
