"""Observers see the engine's events on a thread of their own and cannot hurt it."""

import threading

from lattice_conformance.chatml import BareChatML
from lattice_conformance.fakes import GreedySampler
from lattice_conformance.harness import scripted_engine
from lattice_conformance.scripted_adapter import ScriptedAdapter
from lattice_conformance.scripted_backend import ScriptedBackend, ScriptedCheckpoint
from lattice_core.engine import Engine, EngineConfig
from lattice_core.ledger import MemoryLedger, size_text
from lattice_core.telemetry import Telemetry
from lattice_core.types import GenerationRequest


class Recorder:
    def __init__(self):
        self.events, self.threads, self.seen = [], set(), threading.Event()

    def observe(self, name, fields):
        self.events.append((name, dict(fields)))
        self.threads.add(threading.current_thread().name)
        self.seen.set()


class Broken:
    def observe(self, name, fields):
        raise SystemExit(1)


def test_observers_see_how_a_generation_ended_and_a_broken_one_is_only_counted(caplog):
    recorder = Recorder()
    engine = Engine.start(
        checkpoint=ScriptedCheckpoint(),
        backend=ScriptedBackend,
        sampler=GreedySampler,
        chat_format=BareChatML,
        config=EngineConfig(model_id="m"),
        observers={"broken": Broken(), "recorder": recorder},
        open_adapter=lambda _path: ScriptedAdapter("fr"),
    )
    with engine:
        list(engine.submit(GenerationRequest(prompt="[[say:abc]]")))
        assert recorder.seen.wait(5)
        engine.load_adapter("fr", "any path")
        list(engine.submit(GenerationRequest(prompt="x", model="fr")))
        while len(recorder.events) < 2:
            recorder.seen.clear()
            assert recorder.seen.wait(5)
    assert [fields["adapter"] for _, fields in recorder.events] == [None, "fr"]
    name, fields = recorder.events[0]
    assert (name, fields["outcome"], fields["completion_tokens"]) == ("generation_ended", "finished", 3)
    assert recorder.threads == {"lattice-telemetry"}
    assert engine._telemetry.errors == {"broken": 2, "recorder": 0}
    assert "telemetry broken failed" in caplog.text


def test_events_beyond_the_bound_are_dropped_and_counted():
    entered, release = threading.Event(), threading.Event()

    class Slow:
        def observe(self, name, fields):
            entered.set()
            release.wait(10)

    telemetry = Telemetry({"slow": Slow()})
    telemetry.record("first")
    assert entered.wait(5)
    for _ in range(5000):
        telemetry.record("more")
    release.set()
    telemetry.close(10)
    assert telemetry.dropped == 5000 - 4096


def test_without_observers_nothing_runs():
    with scripted_engine() as engine:
        list(engine.submit(GenerationRequest(prompt="x")))
        assert not any(thread.name == "lattice-telemetry" for thread in threading.enumerate())


def test_a_ledger_never_goes_beyond_its_limit_and_gives_back():
    ledger = MemoryLedger(10)
    assert (ledger.reserve(6), ledger.reserve(5), ledger.reserve(4)) == (True, False, True)
    ledger.free(6)
    assert (ledger.reserved, ledger.fits(7, beside=4), ledger.fits(6, beside=4)) == (4, False, True)
    assert MemoryLedger(None).reserve(10**18)


def test_sizes_are_told_in_the_units_that_the_memory_option_takes():
    assert [size_text(n) for n in (100, 2048, 100 * 1024**2, 8 * 1024**3)] == ["100 B", "2.0K", "100.0M", "8.0G"]
