"""Adapters beside one model: chosen by row, loaded and unloaded while requests go on, bounded, never taken from a row."""

import threading

import pytest

from lattice_conformance.gate import Gate
from lattice_conformance.harness import scripted_engine
from lattice_conformance.scripted_adapter import ScriptedAdapter
from lattice_conformance.scripted_backend import ScriptedBackend
from lattice_core.adapters import AdapterLimits
from lattice_core.errors import (
    AdapterError,
    AdapterLimitError,
    ContextLengthExceededError,
    EngineDiedError,
    InsufficientMemoryError,
    LatticeError,
    RequestError,
    ShuttingDownError,
    UnknownAdapterError,
    UnknownModelError,
    UnsupportedAdapterError,
)
from lattice_core.types import Cancelled, Failed, Limits
from tests.contracts.asking import answer, ask, text_of, wait_until


class Opener:
    """Opens adapters that stand in no file: ``known[path]`` is one, or an error to raise."""

    def __init__(self, **known):
        self.known = known
        self.proceed = threading.Event()
        self.proceed.set()
        self.opening = threading.Event()

    def __call__(self, path):
        self.opening.set()
        assert self.proceed.wait(10)
        found = self.known.get(path, ScriptedAdapter(path))
        if isinstance(found, BaseException):
            raise found
        return found


def engine_with(*names, opener=None, **config):
    """An engine with an adapter for each name, whose fingerprint is its name."""

    class Loaded:
        def __enter__(self):
            self.inner = scripted_engine(open_adapter=opener or Opener(), **config)
            engine = self.inner.__enter__()
            for name in names:
                engine.load_adapter(name, name)
            return engine

        def __exit__(self, *error):
            return self.inner.__exit__(*error)

    return Loaded()


def resident(engine):
    return {info.name: info.requests for info in engine.adapters()}


# ------------------------------------------------------------------------------------------------ which one


def test_three_adapters_and_the_model_in_one_batch_answer_as_each_does_alone(lookahead):
    backend = ScriptedBackend(lookahead=lookahead)
    names = [None, "fr", "de", "pl"] * 3
    with engine_with("fr", "de", "pl", backend=backend, limits=Limits(max_batch=12)) as engine:
        alone = [answer(engine, f"[[say:reply {n}]]", model=name) for n, name in enumerate(names)]
        assert alone[:4] == ["reply 0", "reply 1<fr>", "reply 2<de>", "reply 3<pl>"]
        rows = [engine.submit(ask(f"[[say:reply {n}]]", model=name)) for n, name in enumerate(names)]
        assert [text_of(list(row)) for row in rows] == alone
        assert [row.adapter for row in rows] == names
        assert max(len({row.adapter for row in step}) for step in backend.model.log.forwards) == 4


def test_every_token_of_a_row_is_computed_with_its_adapter(lookahead):
    backend = ScriptedBackend(lookahead=lookahead)
    with engine_with("fr", backend=backend, prefill_chunk=16) as engine:
        assert answer(engine, "p" * 40 + "[[say:abc]]", model="fr") == "abc<fr>"
        assert {row.adapter for step in backend.model.log.forwards for row in step} == {1}
        assert len(backend.model.log.forwards) > 5


def test_a_default_adapter_serves_requests_that_name_the_model_and_its_own_name():
    with engine_with("fr") as engine:
        engine.load_adapter("base-tuned", "tuned", default=True)
        assert [answer(engine, model=name) for name in (None, "lattice", "scripted")] == ["ok<tuned>"] * 3
        assert answer(engine, model="base-tuned") == "ok<tuned>"
        assert answer(engine, model="fr") == "ok<fr>"
        assert answer(engine, adapter="fr") == "ok<fr>"
        assert answer(engine, adapter="") == "ok"
        assert [info.default for info in engine.adapters()] == [False, True]
        with pytest.raises(AdapterError, match="another adapter serves by default"):
            engine.load_adapter("second", "second", default=True)
        engine.unload_adapter("base-tuned")
        assert answer(engine) == "ok"


def test_a_field_beside_the_model_may_repeat_it_and_not_contradict_it():
    with engine_with("fr", "de") as engine:
        assert answer(engine, model="fr", adapter="fr") == "ok<fr>"
        for adapter, wanted in (("de", "the adapter 'de'"), ("", "no adapter")):
            with pytest.raises(RequestError, match=f"`model` names the adapter 'fr' and `lora` wants {wanted}") as caught:
                engine.submit(ask("x", model="fr", adapter=adapter))
            assert caught.value.param == "lora"


def test_an_unknown_name_is_refused_with_the_names_that_are_served():
    with engine_with("fr", "de") as engine:
        with pytest.raises(UnknownModelError, match=r"the model 'xx' is not served here; served: scripted, fr, de$"):
            engine.submit(ask("x", model="xx"))
        with pytest.raises(UnknownAdapterError, match=r"no adapter 'xx' is loaded; loaded: fr, de$") as caught:
            engine.submit(ask("x", adapter="xx"))
        assert caught.value.param == "lora"
        with pytest.raises(UnknownAdapterError, match="no adapter 'scripted' is loaded"):
            engine.submit(ask("x", adapter="scripted"))


def test_an_unknown_name_is_shown_in_one_short_ascii_line():
    with engine_with() as engine, pytest.raises(UnknownModelError) as caught:
        engine.submit(ask("x", model="\x1b[31m\n" + "é" * 1000))
    assert len(caught.value.message) < 200
    assert caught.value.message.isascii()
    assert caught.value.message.isprintable()


# ------------------------------------------------------------------------------------------------ coming and going


def test_unloading_refuses_new_requests_at_once_and_lets_the_old_ones_finish(lookahead):
    gate = Gate()
    backend = ScriptedBackend(gate=gate, lookahead=lookahead)
    with engine_with("fr", backend=backend, limits=Limits(max_batch=1)) as engine:
        running = engine.submit(ask("[[say:running]]", model="fr"))
        queued = engine.submit(ask("[[say:queued]]", model="fr"))
        assert gate.wait_blocked()
        assert engine.unload_adapter("fr") == 2
        with pytest.raises(UnknownModelError):
            engine.submit(ask("x", model="fr"))
        with pytest.raises(UnknownAdapterError):
            engine.unload_adapter("fr")
        [info] = engine.adapters()
        assert (info.unloading, info.requests) == (True, 2)
        gate.open()
        assert [text_of(list(row)) for row in (running, queued)] == ["running<fr>", "queued<fr>"]
        wait_until(lambda: engine.adapters() == ())
        assert backend.model.adapters == {}
        assert engine.stats().reserved_bytes == 0


def test_a_name_may_be_loaded_anew_while_the_old_one_is_still_in_use():
    gate = Gate()
    backend = ScriptedBackend(gate=gate)
    opener = Opener(old=ScriptedAdapter("old"), new=ScriptedAdapter("new"))
    with engine_with(opener=opener, backend=backend) as engine:
        engine.load_adapter("fr", "old")
        running = engine.submit(ask("[[say:a]]", model="fr"))
        assert gate.wait_blocked()
        engine.unload_adapter("fr")
        loaded = threading.Thread(target=engine.load_adapter, args=("fr", "new"))
        loaded.start()
        gate.open()
        loaded.join(10)
        assert not loaded.is_alive()
        assert answer(engine, model="fr") == "ok<new>"
        assert text_of(list(running)) == "a<old>"
        wait_until(lambda: [info.fingerprint for info in engine.adapters()] == ["new"])


def test_requests_go_on_while_an_adapter_is_opened_and_loaded(lookahead):
    opener = Opener()
    opener.proceed.clear()
    with engine_with(opener=opener, backend=ScriptedBackend(lookahead=lookahead)) as engine:
        infos = []
        loading = threading.Thread(target=lambda: infos.append(engine.load_adapter("fr", "fr")))
        loading.start()
        assert opener.opening.wait(10)
        assert answer(engine, "[[repeat:200]]") == "x" * 200
        with pytest.raises(UnknownModelError):
            engine.submit(ask("x", model="fr"))
        long = engine.submit(ask("[[repeat:2000]][[delay:1]]"))
        next(iter(long))
        opener.proceed.set()
        loading.join(10)
        assert long.terminal is None
        assert (infos[0].name, infos[0].format) == ("fr", "scripted")
        assert answer(engine, model="fr") == "ok<fr>"
        long.cancel()


@pytest.mark.parametrize("what", ["cancelled", "refused", "failed", "finished"])
def test_however_a_request_ends_it_holds_no_adapter_afterwards(what, lookahead):
    gate = Gate()
    with engine_with("fr", backend=ScriptedBackend(gate=gate, lookahead=lookahead), limits=Limits(context=64)) as engine:
        if what == "refused":
            with pytest.raises(ContextLengthExceededError):
                engine.submit(ask("x" * 100, model="fr"))
        else:
            row = engine.submit(ask("[[fail:1]][[say:abc]]" if what == "failed" else "[[say:abc]]", model="fr"))
            assert gate.wait_blocked()
            assert resident(engine) == {"fr": 1}
            if what == "cancelled":
                row.cancel()
            gate.open()
            last = list(row)[-1]
            assert isinstance(last, {"cancelled": Cancelled, "failed": Failed}.get(what, object))
        wait_until(lambda: resident(engine) == {"fr": 0})
        assert engine.unload_adapter("fr") == 0
        assert engine.adapters() == ()


def test_a_request_that_is_cancelled_in_the_queue_gives_its_adapter_back():
    gate = Gate()
    with engine_with("fr", backend=ScriptedBackend(gate=gate), limits=Limits(max_batch=1)) as engine:
        engine.submit(ask("[[repeat:5]]"))
        assert gate.wait_blocked()
        queued = engine.submit(ask("x", model="fr"))
        queued.cancel()
        gate.open()
        assert isinstance(list(queued)[-1], Cancelled)
        wait_until(lambda: resident(engine) == {"fr": 0})


def test_adapters_outlive_a_failed_step():
    with engine_with("fr", "de") as engine:
        assert isinstance(list(engine.submit(ask("[[fail:1]]", model="fr")))[-1], Failed)
        assert [answer(engine, model=name) for name in ("fr", "de")] == ["ok<fr>", "ok<de>"]


# ------------------------------------------------------------------------------------------------ what goes wrong


@pytest.mark.parametrize("fault", [IndexError("tensor 3"), SystemExit(9)], ids=["a bug", "an exit"])
def test_a_loader_that_dies_takes_nothing_along(fault):
    with engine_with("de", opener=Opener(fr=fault)) as engine:
        with pytest.raises(LatticeError, match="opening the adapter 'fr' failed"):
            engine.load_adapter("fr", "fr")
        assert resident(engine) == {"de": 0}
        assert answer(engine, model="de") == "ok<de>"
        assert engine.load_adapter("fr", "another").fingerprint == "another"


def test_an_adapter_that_does_not_fit_the_model_is_one_line_and_leaves_nothing():
    wrong = ScriptedAdapter("wrong", nbytes=500, module="layers.0.mlp.up_proj")
    with engine_with(opener=Opener(fr=wrong)) as engine:
        with pytest.raises(AdapterError, match=r"^adapter 'fr': the adapter changes layers\.0\.mlp\.up_proj, which the"):
            engine.load_adapter("fr", "fr")
        assert (engine.adapters(), engine.stats().reserved_bytes, wrong.closed) == ((), 0, True)


def test_a_backend_that_breaks_while_it_loads_an_adapter_is_one_line_and_leaves_nothing():
    backend = ScriptedBackend()
    with engine_with(backend=backend) as engine:
        load, backend.model.load_adapter = backend.model.load_adapter, lambda adapter: {}["x"]
        with pytest.raises(AdapterError, match="adapter 'fr' could not be loaded: KeyError: 'x'"):
            engine.load_adapter("fr", "fr")
        backend.model.load_adapter = load
        assert (engine.adapters(), engine.stats().reserved_bytes) == ((), 0)
        engine.load_adapter("fr", "fr")
        assert answer(engine, model="fr") == "ok<fr>"


def test_opening_has_a_deadline_and_what_comes_later_is_closed():
    late = ScriptedAdapter("late")
    opener = Opener(fr=late)
    opener.proceed.clear()
    with engine_with(opener=opener, adapter_seconds=0.05) as engine:
        with pytest.raises(AdapterError, match=r"opening the adapter 'fr' took longer than 0\.05 s"):
            engine.load_adapter("fr", "fr")
        opener.proceed.set()
        wait_until(lambda: late.closed)
        assert engine.adapters() == ()


def test_a_model_that_holds_no_adapters_says_so():
    opened = ScriptedAdapter("fr")
    with engine_with(opener=Opener(fr=opened), backend=ScriptedBackend(adapters=False)) as engine:
        with pytest.raises(UnsupportedAdapterError, match=r"\(ScriptedForCausalLM\) takes no adapters; use --backend mlx"):
            engine.load_adapter("fr", "fr")
        assert opened.closed
        assert engine.stats().reserved_bytes == 0
        assert answer(engine) == "ok"


def test_an_engine_that_closes_refuses_the_loads_that_wait():
    gate = Gate()
    backend = ScriptedBackend(gate=gate)
    with engine_with(backend=backend) as engine:
        engine.submit(ask("[[repeat:500]]"))
        assert gate.wait_blocked()
        errors = []

        def load():
            try:
                engine.load_adapter("fr", "fr")
            except LatticeError as error:
                errors.append(error)

        loading = threading.Thread(target=load)
        loading.start()
        wait_until(lambda: engine._worker._tasks)
        closing = threading.Thread(target=engine.close, args=(0.0,))
        closing.start()
        wait_until(lambda: engine.health().status == "draining")
        gate.open()
        for thread in (loading, closing):
            thread.join(10)
        assert [type(error) for error in errors] == [ShuttingDownError]
        with pytest.raises(ShuttingDownError):
            engine.load_adapter("de", "de")


def test_a_dead_engine_loads_and_unloads_nothing():
    with engine_with("fr", backend=ScriptedBackend(fail="steps")) as engine:
        row = engine.submit(ask("x", model="fr"))
        assert isinstance(list(row)[-1], Failed)
        for _ in range(2):
            list(engine.submit(ask("x")))
        wait_until(lambda: engine.dead is not None)
        for change in (lambda: engine.load_adapter("de", "de"), lambda: engine.unload_adapter("fr")):
            with pytest.raises(EngineDiedError):
                change()


# ------------------------------------------------------------------------------------------------ names and limits


@pytest.mark.parametrize("name", ["", " fr", "a/b", "-fr", ".hidden", "é", "a" * 129, "a\n"])
def test_a_name_that_could_not_stand_in_a_request_is_refused(name):
    with engine_with() as engine, pytest.raises(AdapterError, match="cannot be the name of an adapter: letters, digits"):
        engine.load_adapter(name, "fr")


@pytest.mark.parametrize("name", ["scripted", "lattice"])
def test_an_adapter_may_not_take_the_models_name(name):
    with engine_with() as engine, pytest.raises(AdapterError, match=f"'{name}' is the name of the model itself"):
        engine.load_adapter(name, "fr")


def test_a_name_is_loaded_once_also_by_two_who_load_it_at_the_same_time():
    opener = Opener()
    opener.proceed.clear()
    with engine_with(opener=opener) as engine:
        first = threading.Thread(target=engine.load_adapter, args=("fr", "fr"))
        first.start()
        assert opener.opening.wait(10)
        with pytest.raises(AdapterError, match="'fr' is loaded already; unload it first"):
            engine.load_adapter("fr", "fr")
        opener.proceed.set()
        first.join(10)
        with pytest.raises(AdapterError, match="'fr' is loaded already; unload it first"):
            engine.load_adapter("fr", "fr")
        assert resident(engine) == {"fr": 0}


def test_no_more_adapters_are_resident_than_the_limit_and_one_that_still_serves_counts():
    gate = Gate()
    with engine_with("a", "b", backend=ScriptedBackend(gate=gate), adapters=AdapterLimits(count=2)) as engine:
        with pytest.raises(AdapterLimitError, match="2 adapters are resident, as many as --max-resident-adapters allows"):
            engine.load_adapter("c", "c")
        row = engine.submit(ask("[[say:x]]", model="a"))
        assert gate.wait_blocked()
        assert engine.unload_adapter("a") == 1
        with pytest.raises(AdapterLimitError):
            engine.load_adapter("c", "c")
        gate.open()
        assert text_of(list(row)) == "x<a>"
        wait_until(lambda: len(engine.adapters()) == 1)
        engine.load_adapter("c", "c")
        assert resident(engine) == {"b": 0, "c": 0}


def test_their_bytes_have_a_limit_and_are_given_back():
    sizes = {name: ScriptedAdapter(name, nbytes=size) for name, size in {"a": 600, "b": 500, "c": 400}.items()}
    with engine_with(opener=Opener(**sizes), adapters=AdapterLimits(nbytes=1000)) as engine:
        engine.load_adapter("a", "a")
        with pytest.raises(AdapterLimitError, match=r"'b' takes 500 B, and of the 1000 B .* allows 600 B are taken"):
            engine.load_adapter("b", "b")
        engine.load_adapter("c", "c")
        assert engine.stats().reserved_bytes == 1000
        engine.unload_adapter("a")
        assert engine.stats().reserved_bytes == 400
        engine.load_adapter("b", "b")


@pytest.mark.parametrize("on_device", [40, 100, 400])
def test_what_counts_is_what_an_adapter_takes_on_the_device(on_device):
    backend = ScriptedBackend()
    with engine_with(opener=Opener(fr=ScriptedAdapter("fr", nbytes=100)), backend=backend) as engine:
        backend.model.adapter_bytes = lambda adapter: on_device
        assert engine.load_adapter("fr", "fr").nbytes == on_device
        assert engine.stats().reserved_bytes == on_device
        engine.unload_adapter("fr")
        assert engine.stats().reserved_bytes == 0


def test_one_that_grows_past_the_limit_on_the_device_is_freed_again():
    backend = ScriptedBackend()
    opener = Opener(fr=ScriptedAdapter("fr", nbytes=100))
    with engine_with(opener=opener, backend=backend, adapters=AdapterLimits(nbytes=300)) as engine:
        backend.model.adapter_bytes = lambda adapter: 400
        with pytest.raises(AdapterLimitError, match="'fr' takes 400 B"):
            engine.load_adapter("fr", "fr")
        assert (backend.model.adapters, engine.adapters(), engine.stats().reserved_bytes) == ({}, (), 0)


def test_adapters_and_requests_share_the_memory():
    opener = Opener(fr=ScriptedAdapter("fr", nbytes=6000), de=ScriptedAdapter("de", nbytes=6000))
    with engine_with(opener=opener, memory=10_000) as engine:
        engine.load_adapter("fr", "fr")
        with pytest.raises(AdapterLimitError, match=r"of the 9\.8K of memory 5\.9K are reserved"):
            engine.load_adapter("de", "de")
        with pytest.raises(InsufficientMemoryError, match=r"beside 5\.9K of weights"):
            engine.submit(ask("x", max_tokens=50))
        engine.unload_adapter("fr")
        assert answer(engine, max_tokens=50) == "ok"


def test_a_request_whose_memory_an_adapter_took_while_it_waited_fails_and_does_not_wait_for_ever():
    gate = Gate()
    backend = ScriptedBackend(gate=gate)
    with engine_with(opener=Opener(fr=ScriptedAdapter("fr", nbytes=5000)), backend=backend, memory=10_000) as engine:
        running = engine.submit(ask("[[say:ab]]", max_tokens=30))
        waiting = engine.submit(ask("[[say:cd]]", max_tokens=60))
        assert gate.wait_blocked()
        assert engine.stats().queued == 1
        loading = threading.Thread(target=engine.load_adapter, args=("fr", "fr"))
        loading.start()
        wait_until(lambda: engine._worker._tasks)
        gate.open()
        loading.join(10)
        assert text_of(list(running)) == "ab"
        last = list(waiting)[-1]
        assert isinstance(last, Failed)
        assert isinstance(last.error, InsufficientMemoryError)
        assert "was taken by adapters while it waited" in last.error.message
        assert answer(engine, max_tokens=10) == "ok"
