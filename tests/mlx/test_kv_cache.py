"""Slabs and slots: who stands where, and that nothing is copied that need not be."""

import mlx.core as mx
import numpy as np
import pytest

from lattice_core.types import RowInput
from lattice_mlx.kv_cache import CacheGeometry, KVCache, Sequence
from tests.mlx.naive_llama import random_checkpoint

GEOMETRY = CacheGeometry(layers=2, kv_rows=4, head_dim=8, dtype=mx.float32, context=5000)


def sequence(cache, length, fill):
    made = Sequence()
    for layer in cache.to_own(made, length).own:
        layer[:, :, :length] = mx.full((1, 4, length, 8), fill)
    made.length = length
    return made


def content(held):
    layers = held.slab.layers if held.slab is not None else held.own
    return [np.array(layer)[held.slot : held.slot + 1, :, : held.length] for layer in layers]


@pytest.mark.parametrize(
    ("length", "capacity"), [(0, 256), (1, 256), (256, 256), (257, 512), (1025, 2048), (4096, 4096), (4097, 5000), (5000, 5000)]
)
def test_capacities_are_powers_of_two_and_end_at_the_context(length, capacity):
    assert GEOMETRY.capacity(length) == capacity


def test_a_sequence_without_tokens_has_no_arrays():
    assert Sequence().own == []
    assert Sequence().capacity == 0


def test_slots_in_use_stay_a_dense_prefix_and_keep_their_content():
    cache = KVCache(GEOMETRY)
    rows = [sequence(cache, 10 + fill, fill) for fill in range(1, 8)]
    slab, *_ = [cache.to_slab(row) for row in rows]
    for leaving in (2, 0, 4, 1):
        gone = rows.pop(leaving)
        cache.drop(gone)
        assert sorted(row.slot for row in rows) == list(range(len(rows)))
        assert [slab.rows[row.slot] for row in rows] == rows
        for row in rows:
            for layer in content(row):
                assert layer.shape == (1, 4, row.length, 8)
                assert (layer == row.length - 10).all()
    assert slab.slots < 7
    for row in rows:
        cache.drop(row)
    assert slab.slots == 0


def test_a_row_that_outgrows_its_slab_moves_up_alone():
    cache = KVCache(GEOMETRY)
    rows = [sequence(cache, length, length) for length in (255, 256, 100)]
    slabs = [cache.to_slab(row) for row in rows]
    assert [slab.capacity for slab in slabs] == [256, 512, 256]
    rows[0].length = 256
    assert cache.to_slab(rows[0]) is slabs[1]
    assert [len(slab.rows) for slab in slabs[:2]] == [1, 2]
    for layer in content(rows[0]):
        assert (layer[:, :, :255] == 255).all()
    assert (content(rows[2])[0] == 100).all()


def test_a_joining_row_leaves_nothing_of_its_predecessor_in_the_slot():
    cache = KVCache(GEOMETRY)
    first, second = sequence(cache, 50, 1.0), sequence(cache, 200, float("nan"))
    slab, *_ = [cache.to_slab(row) for row in (first, second)]
    third = sequence(cache, 20, 3.0)
    slab.rows[1].length = 200
    cache.drop(second)
    cache.to_slab(third)
    assert not np.isnan(np.array(slab.layers[0])).any()


def test_forks_share_arrays_until_one_writes():
    cache = KVCache(GEOMETRY)
    first = sequence(cache, 100, 1.0)
    mx.eval(first.own)
    before = mx.get_active_memory()
    second = cache.fork(first)
    mx.eval(second.own)
    assert mx.get_active_memory() <= before + 1024
    first.own[0][:, :, :100] = mx.zeros((1, 4, 100, 8))
    assert (content(second)[0] == 1.0).all()
    assert (content(first)[0] == 0.0).all()


def test_a_sequence_taken_out_of_a_slab_no_longer_depends_on_it():
    cache = KVCache(GEOMETRY)
    rows = [sequence(cache, 60, fill) for fill in (1.0, 2.0)]
    slab, *_ = [cache.to_slab(row) for row in rows]
    own = cache.to_own(rows[0], 500).own
    assert own[0].shape == (1, 4, 1024, 8)
    slab.layers[0][:] = 9.0
    assert (content(rows[0])[0] == 1.0).all()
    assert rows[1].slot == 0


def test_a_leaving_row_costs_the_copy_of_one_slot():
    cache = KVCache(GEOMETRY)
    rows = [sequence(cache, 400, fill) for fill in range(9)]
    slab, *_ = [cache.to_slab(row) for row in rows]
    mx.eval(slab.layers)
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    cache.drop(rows[1])
    mx.eval(slab.layers)
    one_slot = sum(layer.nbytes for layer in slab.layers) // slab.slots
    assert mx.get_peak_memory() - before < 2 * one_slot
    assert (content(rows[8])[0] == 8).all()
    assert rows[8].slot == 1


def test_a_slab_that_shrinks_gives_memory_back():
    cache = KVCache(GEOMETRY)
    rows = [sequence(cache, 400, fill) for fill in range(8)]
    slab, *_ = [cache.to_slab(row) for row in rows]
    mx.eval(slab.layers)
    mx.clear_cache()
    before = mx.get_active_memory()
    for row in rows[2:]:
        cache.drop(row)
    mx.eval(slab.layers)
    mx.clear_cache()
    assert slab.slots == 2
    one_slot = slab.layers[0].nbytes * len(slab.layers) // 2
    assert mx.get_active_memory() <= before - 6 * one_slot
    assert [content(row)[0].mean() for row in rows[:2]] == [0.0, 1.0]


@pytest.mark.parametrize("lengths", [(300, 300, 300), (300, 301, 310)], ids=["together", "apart"])
def test_a_decode_step_writes_into_the_caches_in_place(model, feed, lengths):
    states = [model.new_state() for _ in lengths]
    for state, length in zip(states, lengths, strict=True):
        feed(model, state, [1] * length)

    def step():
        logits = model.forward([RowInput(state, (2,)) for state in states]).array
        model.launch([logits])
        model.wait([logits])

    step()
    slabs = [model._sequences[state].slab for state in states]
    assert all(slab is slabs[0] for slab in slabs)
    one_layer = slabs[0].layers[0].nbytes
    mx.clear_cache()
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    step()
    assert mx.get_peak_memory() - before < one_layer, "a whole layer of the cache was copied"
    assert mx.get_active_memory() - before < one_layer // 2


def test_a_chunk_writes_into_the_caches_in_place(loaded, feed):
    model = loaded(random_checkpoint(head_dim=64, num_key_value_heads=4, max_position_embeddings=8192))
    state = model.new_state()
    feed(model, state, [1] * 4200)
    held = model._sequences[state].own[0].nbytes
    mx.clear_cache()
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    feed(model, state, [1, 2])
    assert mx.get_peak_memory() - before < held // 2
