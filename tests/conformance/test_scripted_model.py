import time

import numpy as np
import pytest

from lattice_conformance.scripted_backend import VOCAB_SIZE, ScriptedBackend, ScriptedCheckpoint
from lattice_conformance.scripted_model import REPLY_LOGIT, ScriptedFailureError
from lattice_conformance.scripted_tokenizer import IM_END_ID
from lattice_core.errors import ModelError
from lattice_core.types import Limits, Pending, RowInput, Want


def load(limits=None, **settings):
    return ScriptedBackend(**settings).load(ScriptedCheckpoint(), limits or Limits(), lambda done, total: None)


def ids(text):
    return tuple(text.encode())


def generate(model, state, text, count):
    """The reply, each token handed on unread, as the engine does."""
    array = model.forward([RowInput(state, ids(text))]).array
    reply = []
    for _ in range(count):
        tokens = array.__array_namespace__().argmax(array, axis=-1)
        reply += model.read(tokens)
        array = model.forward([RowInput(state, Pending(tokens, 0))]).array
    return reply


def test_the_reply_comes_token_by_token_and_ends():
    model = load()
    assert generate(model, model.new_state(), "[[say:ok]]", 4) == [ord("o"), ord("k"), IM_END_ID, IM_END_ID]


def test_chunked_prefill_gives_the_logits_of_one_prefill():
    model = load()
    prompt = ids("hello [[say:abc]] world")
    whole, chunked = model.new_state(), model.new_state()
    expected = model.forward([RowInput(whole, prompt)]).array
    for start in range(0, len(prompt) - 1, 3):
        assert model.forward(
            [RowInput(chunked, prompt[start : start + 3][: len(prompt) - 1 - start], Want.NONE)]
        ).array.shape == (
            0,
            VOCAB_SIZE,
        )
    np.testing.assert_array_equal(model.forward([RowInput(chunked, prompt[-1:])]).array, expected)


def test_each_row_has_its_own_script_and_want():
    model = load()
    a, b, c = (model.new_state() for _ in range(3))
    array = model.forward(
        [RowInput(a, ids("[[say:A]]")), RowInput(b, ids("x"), Want.NONE), RowInput(c, ids("[[say:C]]"), Want.ALL)]
    ).array
    assert array.argmax(axis=-1).tolist() == [ord("A"), *ids("[say:C]]"), ord("C")]


def test_logits_are_distinct_float32_and_not_writable():
    model = load()
    array = model.forward([RowInput(model.new_state(), ids("hi"))]).array
    assert array.dtype == np.float32
    assert len(set(array[0].tolist())) == VOCAB_SIZE
    assert array.max() == REPLY_LOGIT
    with pytest.raises(ValueError, match="read-only"):
        array[0, 0] = 1


def test_a_fork_goes_on_as_its_original_and_apart_from_it():
    model = load()
    state = model.new_state()
    generate(model, state, "[[say:abcd]]", 1)
    [copy] = model.fork([state])
    model.forward([RowInput(state, (ord("b"),))])
    assert model.tokens_of(copy) == ids("[[say:abcd]]a")
    assert model.forward([RowInput(copy, (ord("b"),))]).array.argmax() == ord("c")


def test_rollback_forgets_tokens_exactly():
    model = load()
    state = model.new_state()
    prompt = "[[say:abcd]]"
    generate(model, state, prompt, 3)
    assert model.rollback([state], [len(prompt)])
    assert model.forward([RowInput(state, (ord("a"),))]).array.argmax() == ord("b")
    assert model.rollback([state], [0])
    assert model.forward([RowInput(state, ids("[[say:other]]"))]).array.argmax() == ord("o")
    with pytest.raises(ValueError, match="cannot keep 99"):
        model.rollback([state], [99])


def test_states_are_counted_released_and_reset():
    model = load()
    a, b = model.new_state(), model.new_state()
    assert model.live_states() == 2
    model.release([a])
    assert model.live_states() == 1
    with pytest.raises(KeyError):
        model.release([a])
    model.reset()
    assert model.live_states() == 0
    with pytest.raises(KeyError):
        model.forward([RowInput(b, (1,))])
    assert generate(model, model.new_state(), "[[say:on]]", 2) == list(ids("on"))


def test_a_mask_blocks_what_it_does_not_name():
    model = load()
    array = model.forward([RowInput(model.new_state(), ids("[[say:q]]"))]).array
    packed = np.zeros((1, -(-VOCAB_SIZE // 32)), np.uint32)
    for token in (ord("c"), ord("d"), 258):
        packed[0, token // 32] |= np.uint32(1 << token % 32)
    masked = model.apply_mask(array, packed)
    assert np.flatnonzero(np.isfinite(masked[0])).tolist() == [ord("c"), ord("d"), 258]
    assert masked.argmax() == ord("c")
    assert array.max() == REPLY_LOGIT
    with pytest.raises(ValueError, match="expected uint32"):
        model.apply_mask(array, packed[:, :-1])


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (lambda s: [RowInput(s, (1,)), RowInput(s, (1,))], "twice"),
        (lambda s: [RowInput(s, ())], "no token"),
        (lambda s: [RowInput(s, (VOCAB_SIZE,))], "outside"),
        (lambda s: [RowInput(s, (1,) * 17)], "beyond the context of 16"),
    ],
)
def test_a_plan_that_breaks_the_contract_is_refused(plan, message):
    model = load(context=16)
    with pytest.raises(ValueError, match=message):
        model.forward(plan(model.new_state()))


def test_a_plan_wider_than_the_batch_is_refused():
    model = load(Limits(max_batch=1))
    with pytest.raises(ValueError, match="2 rows exceeds the batch of 1"):
        model.forward([RowInput(model.new_state(), (1,)) for _ in range(2)])


@pytest.mark.parametrize(("directive", "tokens"), [("[[fail-prefill]]", 0), ("[[fail:0]]", 0), ("[[fail:2]]", 2)])
def test_a_scripted_failure_comes_in_its_own_forward(directive, tokens):
    model = load()
    state = model.new_state()
    prompt = ids(f"{directive}[[say:abcdef]]")
    model.forward([RowInput(state, prompt[:-1], Want.NONE)])
    fed = prompt[-1:]
    for _ in range(tokens):
        fed = (int(model.forward([RowInput(state, fed)]).array.argmax()),)
    with pytest.raises(ScriptedFailureError, match=f"reply token {tokens}"):
        model.forward([RowInput(state, fed)])


def test_every_step_fails_where_the_settings_say_so():
    model = load(fail="steps")
    for _ in range(3):
        with pytest.raises(ScriptedFailureError):
            model.forward([RowInput(model.new_state(), (1,))])


def test_loading_fails_where_the_settings_say_so():
    with pytest.raises(ModelError, match="told to fail"):
        load(fail="load")


def test_a_context_beyond_the_models_is_refused_and_a_smaller_one_holds():
    with pytest.raises(ModelError, match="context 5000 exceeds the model's 4096"):
        load(Limits(context=5000))
    assert load(Limits(context=100)).info.context == 100


def test_delays_take_their_time():
    model = load()
    state = model.new_state()
    began = time.monotonic()
    array = model.forward([RowInput(state, ids("[[prefill-delay:30]][[delay:50]]"))]).array
    prefilled = time.monotonic()
    model.forward([RowInput(state, (int(array.argmax()),))])
    assert prefilled - began >= 0.03
    assert time.monotonic() - prefilled >= 0.05


def test_the_log_tells_what_the_model_was_asked():
    backend = ScriptedBackend()
    model = backend.load(ScriptedCheckpoint(), Limits(), lambda done, total: None)
    a, b = model.new_state(), model.new_state()
    model.forward([RowInput(a, ids("first")), RowInput(b, ids("sec"), Want.NONE)])
    model.forward([RowInput(a, (1,)), RowInput(b, ids("ond"))])
    model.release([a, b])
    log = backend.model.log
    assert (log.forward_calls, log.states_created) == (2, 2)
    assert [[(row.state, len(row.tokens), row.decode) for row in rows] for rows in log.forwards] == [
        [(a, 5, False), (b, 3, False)],
        [(a, 1, True), (b, 3, False)],
    ]
    assert log.fed(b) == ids("second")
    assert log.saw("second")
    assert not log.saw("third")
