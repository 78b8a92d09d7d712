"""The head for multi-token prediction: loaded where a checkpoint has one, right, and without effect on the output."""

import mlx.core as mx
import numpy as np
import pytest

from lattice_core.descriptors import Settings
from lattice_core.errors import ModelError
from lattice_mlx.segments import WholeSegment
from lattice_mlx.step import Step
from lattice_safetensors.loader import SafetensorsLoader
from tests.mlx.naive_llama import DATA

NAME = "tiny-qwen35-nested-bf16"


class Without:
    """A checkpoint with some tensors left out."""

    def __init__(self, checkpoint, left_out):
        self._checkpoint, self._left_out = checkpoint, left_out

    def __getattr__(self, name):
        return getattr(self._checkpoint, name)

    def tensors(self):
        return {name: spec for name, spec in self._checkpoint.tensors().items() if not self._left_out(name)}


def opened(left_out=lambda _name: False):
    return Without(SafetensorsLoader(Settings()).open(DATA / NAME), left_out)


def test_drafts_equal_the_reference(models):
    model = models(NAME)
    with np.load(DATA / "mtp-reference.npz") as expected, np.load(DATA / NAME / "reference.npz") as reference:
        head = model._network
        step = Step(mx.array(expected["input_ids"]), mx.arange(36), (WholeSegment(36),), None)
        embedded = head._embedding(step.tokens)
        hidden = head.mtp(embedded, mx.array(reference["hidden"][-1][:36]), step, head._kernels.rope.at(step.positions))
        logits = np.array(head._head(hidden))
        difference = np.abs(logits - expected["logits"]).max()
    print(f"max abs logit difference {difference:.2e}")
    assert difference < 1e-3


def test_drafts_come_from_the_hidden_states_of_the_network(models, feed):
    model = models(NAME)
    with np.load(DATA / "mtp-reference.npz") as expected, np.load(DATA / NAME / "reference.npz") as reference:
        seen = []
        network = model._network
        original = network.logits
        network.logits = lambda hidden: (seen.append(hidden), original(hidden))[1]
        try:
            feed(model, model.new_state(), reference["prompt_ids"])
        finally:
            network.logits = original
        drafts = np.array(network.draft(mx.array(expected["input_ids"]), seen[0][:36]))
        assert np.abs(drafts - expected["logits"]).max() < 1e-3


def test_output_is_the_same_without_the_head(models, loaded, feed):
    bare = loaded(opened(lambda name: name.startswith("mtp.")))
    assert models(NAME)._network.mtp is not None
    assert bare._network.mtp is None
    ids = np.arange(3, 40)
    model = models(NAME)
    np.testing.assert_array_equal(feed(bare, bare.new_state(), ids), feed(model, model.new_state(), ids))
    with pytest.raises(ValueError, match="no head for multi-token prediction"):
        bare._network.draft(mx.array([1]), mx.zeros((1, 64)))


def test_half_a_head_is_an_error_that_names_what_is_missing(loaded):
    with pytest.raises(ModelError, match=r"lacks 1 tensor: mtp.fc.weight"):
        loaded(opened(lambda name: name == "mtp.fc.weight"))
