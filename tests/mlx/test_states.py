"""States by id: forks, rollbacks, faults and memory."""

import gc

import mlx.core as mx
import numpy as np
import pytest
from attrs import evolve

from lattice_core.types import RowInput, Want
from tests.mlx.naive_llama import random_checkpoint

IDS = np.random.default_rng(5).integers(0, 500, 80).tolist()


def test_a_fork_goes_its_own_way(model, feed):
    state = model.new_state()
    feed(model, state, IDS[:30])
    for _ in range(2):  # first a state with arrays of its own, then one in a slab
        [twin] = model.fork([state])
        ours, theirs = feed(model, state, IDS[30:33]), feed(model, twin, IDS[50:53])
        np.testing.assert_allclose(feed(model, model.new_state(), IDS[:30] + IDS[50:53])[-1], theirs[-1], atol=1e-4)
        np.testing.assert_allclose(feed(model, model.new_state(), IDS[:33])[-1], ours[-1], atol=1e-4)
        model.rollback([state], [29])
        feed(model, state, IDS[29:30])


def test_forking_an_empty_state_gives_an_empty_state(model, feed):
    [twin] = model.fork([model.new_state()])
    np.testing.assert_array_equal(feed(model, twin, IDS[:5]), feed(model, model.new_state(), IDS[:5]))


@pytest.mark.parametrize("decoding", [False, True])
@pytest.mark.parametrize("keep", [0, 1, 25])
def test_rollback_forgets_exactly(model, feed, decoding, keep):
    state = model.new_state()
    feed(model, state, IDS[:40])
    if decoding:
        feed(model, state, IDS[40:41])
    assert model.rollback([state], [keep]) is True
    expected = feed(model, model.new_state(), IDS[:keep] + IDS[60:70])[keep:]
    np.testing.assert_allclose(feed(model, state, IDS[60:70]), expected, atol=1e-4)


def test_rollback_of_more_than_a_state_holds_is_refused_and_changes_nothing(model, feed):
    states = [model.new_state(), model.new_state()]
    for state in states:
        feed(model, state, IDS[:10])
    with pytest.raises(ValueError, match="a state of 10 tokens cannot keep 11"):
        model.rollback(states, [3, 11])
    expected = feed(model, model.new_state(), IDS[:11])[-1]
    for state in states:
        np.testing.assert_allclose(feed(model, state, IDS[10:11])[-1], expected, atol=1e-4)


def test_ids_of_released_states_are_unknown(model):
    state = model.new_state()
    assert model.live_states() == 1
    model.release([state])
    assert model.live_states() == 0
    with pytest.raises(KeyError):
        model.release([state])
    with pytest.raises(KeyError):
        model.forward([RowInput(state, (1,))])
    with pytest.raises(KeyError):
        model.fork([state])


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ((), "is given no token"),
        ((1, 512), "token 512 is outside the vocabulary of 512"),
        ((-1,), "token -1 is outside the vocabulary of 512"),
        ((1,) * 4097, "would hold 4097 tokens, the context is 4096"),
    ],
)
def test_impossible_plans_are_refused_before_anything_is_done(model, feed, tokens, message):
    good, bad = model.new_state(), model.new_state()
    feed(model, good, IDS[:7])
    with pytest.raises(ValueError, match=message):
        model.forward([RowInput(good, (1,)), RowInput(bad, tokens)])
    np.testing.assert_allclose(feed(model, good, IDS[7:8])[-1], feed(model, model.new_state(), IDS[:8])[-1], atol=1e-4)


def test_a_state_stands_in_a_plan_once_and_a_plan_has_rows(model):
    state = model.new_state()
    with pytest.raises(ValueError, match="twice"):
        model.forward([RowInput(state, (1,)), RowInput(state, (2,))])
    with pytest.raises(ValueError, match="at least one row"):
        model.forward([])


class DeviceFaultError(Exception):
    pass


def test_a_step_that_breaks_half_way_leaves_a_model_that_serves_after_reset(model, feed, monkeypatch):
    expected = feed(model, model.new_state(), IDS[:20])
    states = [model.new_state() for _ in range(3)]
    for state in states:
        feed(model, state, IDS[:20])
        feed(model, state, IDS[20:21])
    calls = []

    def fail(gate, up):
        calls.append(gate)
        if len(calls) == 2:  # in the second layer, when caches have been written
            raise DeviceFaultError
        return gate * mx.sigmoid(gate) * up

    blocks = [layer.feed_forward for layer in model._network._layers]
    sound = blocks[0]._kernels
    with monkeypatch.context() as patch:
        for block in blocks:
            patch.setattr(block, "_kernels", evolve(block._kernels, swiglu=fail))
        with pytest.raises(DeviceFaultError):
            model.forward([RowInput(state, (1,)) for state in states])
    assert blocks[0]._kernels is sound
    model.reset()
    assert model.live_states() == 0
    np.testing.assert_array_equal(feed(model, model.new_state(), IDS[:20]), expected)


def test_memory_returns_when_all_states_are_released(model, feed):
    gc.collect()  # models of other tests
    mx.clear_cache()
    before = mx.get_active_memory()
    states = [model.new_state() for _ in range(6)]
    for index, state in enumerate(states):
        feed(model, state, (IDS * 10)[: 100 * index + 2])
    model.read_logits(model.forward([RowInput(state, (1,)) for state in states]).array)
    assert mx.get_active_memory() > before + 6 * 256 * model.info.state_bytes_per_token // 2
    model.release(states)
    assert mx.get_active_memory() <= before + 4096
    assert mx.get_cache_memory() == 0


def test_a_state_takes_no_more_than_what_the_model_says(loaded, feed):
    model = loaded(random_checkpoint(num_hidden_layers=4, hidden_size=64))
    mx.clear_cache()
    for length in (1, 200, 300, 600, 1500):
        before = mx.get_active_memory()
        state = model.new_state()
        feed(model, state, [1] * length, Want.NONE)
        held = mx.get_active_memory() - before
        assert held <= model.info.state_bytes(length) + 65536, f"{length} tokens take {held} bytes"
        model.release([state])


def test_a_closed_model_gives_its_weights_back_and_refuses_work(loaded, feed):
    mx.clear_cache()
    before = mx.get_active_memory()
    model = loaded(random_checkpoint(hidden_size=128, vocab_size=1000))
    assert mx.get_active_memory() >= before + model.info.nbytes
    state = model.new_state()
    feed(model, state, [1, 2, 3])
    model.close()
    assert mx.get_active_memory() <= before + 4096
    with pytest.raises(RuntimeError, match="closed"):
        model.forward([RowInput(model.new_state(), (1,))])
