"""The forward pass against outputs of other implementations, however its tokens are cut."""

import mlx.core as mx
import numpy as np
import pytest

from lattice_core.types import Pending, RowInput, Want
from tests.mlx.naive_llama import DATA, NaiveLlama, random_checkpoint
from tests.mlx.safetensors_checkpoint import SafetensorsCheckpoint

LLAMAS = ("tiny-llama-tied-f32", "tiny-llama-tied-bf16", "tiny-llama3rope-untied-bf16", "mlx-llama-4bit")
NAMES = tuple(sorted(path.parent.name for path in DATA.glob("*/reference.npz")))
BOUND = 1e-3


def reference_of(name):
    with np.load(DATA / name / "reference.npz") as archive:
        return dict(archive)


@pytest.fixture(params=NAMES)
def pair(request, models):
    return models(request.param), reference_of(request.param)


def assert_equal_logits(ours, theirs):
    difference = np.abs(ours - theirs).max()
    print(f"max abs logit difference {difference:.2e}")
    assert difference < BOUND
    assert (ours.argmax(-1) == theirs.argmax(-1)).all()


def test_prefill_logits_equal_the_reference(pair, feed):
    model, reference = pair
    assert_equal_logits(feed(model, model.new_state(), reference["prompt_ids"]), reference["logits"])


def test_long_prompt_logits_equal_the_reference(pair, feed):
    model, reference = pair
    logits = feed(model, model.new_state(), reference["long_ids"])
    assert_equal_logits(logits[reference["long_positions"]], reference["long_logits"])


@pytest.mark.parametrize("seed", range(3))
def test_chunks_of_any_size_change_nothing(pair, feed, seed):
    model, reference = pair
    ids = reference["long_ids"]
    cuts = np.sort(np.random.default_rng(seed).choice(np.arange(1, len(ids)), 7, replace=False))
    state = model.new_state()
    logits = np.concatenate([feed(model, state, chunk) for chunk in np.split(ids, cuts)])
    assert_equal_logits(logits[reference["long_positions"]], reference["long_logits"])


def test_token_by_token_changes_nothing(pair, feed):
    model, reference = pair
    state = model.new_state()
    logits = np.concatenate([feed(model, state, [token]) for token in reference["prompt_ids"]])
    assert_equal_logits(logits, reference["logits"])


def test_greedy_tokens_equal_the_reference_without_reading_between_steps(pair):
    model, reference = pair
    state = model.new_state()
    logits = model.forward([RowInput(state, tuple(reference["prompt_ids"].tolist()))]).array
    sampled = []
    for _ in reference["greedy_ids"]:
        sampled.append(mx.argmax(logits, axis=-1))
        logits = model.forward([RowInput(state, Pending(sampled[-1], 0))]).array
        model.launch([sampled[-1], logits])
    assert [model.read(token)[0] for token in sampled] == reference["greedy_ids"].tolist()


def test_all_models_of_the_data_are_compared():
    assert len(NAMES) == 16


def greedy_beside_others(model, reference, others):
    """The reference's prompt and continuation as one row of a batch whose other rows have other lengths and tokens."""
    rng = np.random.default_rng(others)
    state = model.new_state()
    neighbours = [model.new_state() for _ in range(others)]
    plan = [RowInput(state, tuple(reference["prompt_ids"].tolist()), Want.ALL)]
    plan += [RowInput(one, tuple(rng.integers(0, 490, 5 + 30 * place).tolist())) for place, one in enumerate(neighbours)]
    logits = model.read_logits(model.forward(plan).array)
    prompt, found = logits[: len(reference["prompt_ids"])], []
    last = prompt[-1]
    for _ in reference["greedy_ids"]:
        found.append(int(last.argmax()))
        plan = [RowInput(state, (found[-1],))]
        # A neighbour sits out now and then: its slot computes what nobody reads, and its state stays.
        plan += [RowInput(one, (int(rng.integers(0, 490)),)) for one in neighbours if rng.random() < 0.8]
        last = model.read_logits(model.forward(plan).array)[0]
    return prompt, found


@pytest.mark.parametrize("others", [1, 3])
def test_rows_of_other_lengths_beside_it_change_nothing(pair, others):
    model, reference = pair
    prompt, found = greedy_beside_others(model, reference, others)
    assert_equal_logits(prompt, reference["logits"])
    assert found == reference["greedy_ids"].tolist()


def test_a_row_that_sat_out_goes_on_where_it_was(pair, feed):
    model, reference = pair
    ids = reference["prompt_ids"]
    states = [model.new_state() for _ in range(3)]
    for state in states:
        feed(model, state, ids[:20])
    for token in ids[20:30]:
        model.forward([RowInput(states[1], (int(token),))])
    logits = np.concatenate([feed(model, states[0], [token]) for token in ids[20:]])
    assert_equal_logits(logits, reference["logits"][20:])
    assert_equal_logits(feed(model, states[1], ids[30:]), reference["logits"][30:])
    assert_equal_logits(feed(model, states[2], ids[20:]), reference["logits"][20:])


@pytest.mark.parametrize("decoding", [False, True], ids=["own arrays", "in a slab"])
def test_a_fork_goes_on_as_if_it_were_alone_and_so_does_its_origin(pair, feed, decoding):
    model, reference = pair
    ids = reference["prompt_ids"]
    state = model.new_state()
    feed(model, state, ids[:24])
    if decoding:
        feed(model, state, ids[24:25])
    fed = 25 if decoding else 24
    # The fork is the snapshot: its origin goes elsewhere and is dropped, and it is gone on from there.
    [snapshot] = model.fork([state])
    [again] = model.fork([snapshot])
    feed(model, state, [1, 2, 3, 4])
    feed(model, state, [5])
    model.release([state])
    assert_equal_logits(feed(model, snapshot, ids[fed:]), reference["logits"][fed:])
    logits = np.concatenate([feed(model, again, [token]) for token in ids[fed:]])
    assert_equal_logits(logits, reference["logits"][fed:])


def test_rollback_is_exact_or_refused_with_nothing_done(pair, feed):
    model, reference = pair
    ids = reference["prompt_ids"]
    state = model.new_state()
    feed(model, state, ids)
    recurrent = bool(model._sequences[state].recurrent)
    assert recurrent == ("qwen35" in str(model.info.architecture).lower().replace("_", "").replace(".", ""))
    assert model.rollback([state], [len(ids)])
    assert model.rollback([state], [10]) is not recurrent
    if recurrent:
        assert feed(model, state, [3]).shape == (1, 512)
    else:
        assert_equal_logits(feed(model, state, ids[10:]), reference["logits"][10:])


def test_last_and_all_positions_agree_and_none_gives_no_rows(model, feed):
    ids = tuple(reference_of("tiny-llama-tied-f32")["prompt_ids"].tolist())
    every = feed(model, model.new_state(), ids)
    last = feed(model, model.new_state(), ids, Want.LAST)
    none = model.forward([RowInput(model.new_state(), ids, Want.NONE)]).array
    model.launch([none])
    model.wait([none])
    assert every.shape == (len(ids), 512)
    assert last.shape == (1, 512)
    np.testing.assert_allclose(last[0], every[-1], atol=1e-5)
    assert tuple(none.shape) == (0, 512)


def test_the_naive_model_equals_the_reference_too():
    for name in LLAMAS:
        reference = reference_of(name)
        naive = NaiveLlama(SafetensorsCheckpoint(DATA / name))
        assert_equal_logits(naive.logits(reference["prompt_ids"]), reference["logits"])


LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"tie_word_embeddings": True},
        {"num_key_value_heads": 4},
        {"num_key_value_heads": 1},
        {"num_key_value_heads": None, "num_attention_heads": 2},
        {"head_dim": 20},
        {"attention_bias": True},
        {"mlp_bias": True},
        {"rope_theta": 500.0},
        {"rope_theta": 500.0, "rope_scaling": {"type": "linear", "factor": 4.0}},
        {"rope_theta": 500.0, "rope_scaling": {"rope_type": "llama3", **LLAMA3}},
        {"rope_parameters": {"rope_type": "llama3", "rope_theta": 500.0, **LLAMA3}},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 70.0}, "rope_theta": 9.0},
        {"rope_freqs": [1.0, 2.0, 4.0, 8.0]},
    ],
    ids=lambda config: ",".join(config) or "plain",
)
def test_every_variant_of_the_configuration_equals_the_naive_model(config, loaded, feed):
    if config.get("num_key_value_heads", 1) is None:
        checkpoint = random_checkpoint(num_attention_heads=2)
        checkpoint.config.pop("num_key_value_heads")
    else:
        checkpoint = random_checkpoint(**config)
    model = loaded(checkpoint)
    ids = np.random.default_rng(1).integers(0, 96, 150)
    logits = feed(model, model.new_state(), ids)
    expected = NaiveLlama(checkpoint).logits(ids)
    assert np.abs(logits - expected).max() < BOUND
