"""The demo model in float32 against greedy tokens of another implementation."""

import json

import mlx.core as mx
import numpy as np
import pytest

from lattice_core.descriptors import Settings
from lattice_core.types import Pending, RowInput
from lattice_gguf.loader import GgufLoader
from tests.mlx.naive_llama import DATA

pytestmark = pytest.mark.model

CASES = json.loads((DATA / "smollm2-greedy.json").read_text(encoding="utf-8"))["cases"]


@pytest.fixture(scope="module")
def smollm2(loaded, smollm2_path):
    return loaded(GgufLoader(Settings()).open(smollm2_path))


def test_greedy_tokens_of_all_prompts_at_once_equal_the_reference(smollm2):
    states = [smollm2.new_state() for _ in CASES]
    plan = [RowInput(state, tuple(case["prompt_ids"])) for state, case in zip(states, CASES, strict=True)]
    produced = [[] for _ in CASES]
    for step in range(max(len(case["greedy_ids"]) for case in CASES)):
        logits = smollm2.forward(plan).array
        tokens = mx.argmax(logits, axis=-1)
        smollm2.launch([tokens])
        if step == 0:
            for values, case in zip(smollm2.read_logits(logits), CASES, strict=True):
                ids, expected = zip(*case["top5_first"], strict=True)
                assert np.argsort(values)[::-1][:5].tolist() == list(ids)
                np.testing.assert_allclose(values[list(ids)], expected, atol=1e-3)
        for row, token in zip(produced, smollm2.read(tokens), strict=True):
            row.append(token)
        plan = [RowInput(state, Pending(tokens, index)) for index, state in enumerate(states)]
    for row, case in zip(produced, CASES, strict=True):
        assert row[: len(case["greedy_ids"])] == case["greedy_ids"]
    smollm2.release(states)


def test_its_end_of_sequence_and_context_are_known(smollm2):
    assert smollm2.info.context == 8192
    assert 2 in smollm2.info.eos_ids
    assert smollm2.info.vocab_size == 49152
