"""Parts of tests: a frontend that shows or does what --probe-do says, and a loader and backends around the scripted model."""

import json
import sys
import threading
import time

from lattice_core import hookimpl
from lattice_core.descriptors import BackendSpec, FrontendSpec, GrammarSpec, LoaderSpec, Option, TelemetrySpec
from lattice_core.errors import LatticeError
from lattice_core.types import Delta, Failed, GenerationRequest, GrammarRequest, Match, Message


class Probe:
    def __init__(self, settings):
        self.settings = settings
        self.do = settings.own["do"]
        if self.do == "fail-early":
            raise ValueError("not today")

    def serve(self, engine, stop):
        return getattr(self, self.do.replace("-", "_"))(engine, stop)

    def show(self, engine, stop):
        shown = {
            "core": dict(self.settings.core),
            "own": dict(self.settings.own),
            "sources": dict(self.settings.sources),
            "model": [engine.model_id, engine.model_format, engine.model_info.context],
        }
        print(json.dumps(shown, default=str))
        return 0

    def ask(self, engine, stop):
        request = GenerationRequest(messages=(Message("user", self.settings.core["prompt"] or "hi"),))
        print("".join(event.text for event in engine.submit(request) if isinstance(event, Delta)))
        return 0

    def constrained(self, engine, stop):
        for name in ("scripted-blocks", "probe-absent"):
            request = GenerationRequest(prompt="hi", grammar=GrammarRequest(name))
            try:
                print([event.error.code for event in engine.submit(request) if isinstance(event, Failed)])
            except LatticeError as error:
                print(error)
        return 0

    def wait(self, engine, stop):
        seen = []
        stop.add_callback(lambda: seen.append("callback"))
        print("ready", flush=True)
        stop.wait()
        print("stopping", stop.is_set(), seen, flush=True)
        return 0

    def ignore(self, engine, stop):
        print("ready", flush=True)
        stop.wait()
        print("asked", flush=True)
        while True:
            time.sleep(60)

    def count(self, engine, stop):
        while True:
            print("x" * 1000, flush=True)

    def fail(self, engine, stop):
        raise RuntimeError("the door is stuck")

    def leave(self, engine, stop):
        sys.exit(9)

    def nothing(self, engine, stop):
        return None

    def seven(self, engine, stop):
        return 7

    def die(self, engine, stop):
        dead = threading.Event()
        engine.on_death(lambda _error: dead.set())
        while not dead.is_set():
            try:
                list(engine.submit(GenerationRequest(prompt="hi")))
            except LatticeError:
                dead.wait(10)
        return 0

    def stuck(self, engine, stop):
        threading.Thread(target=time.sleep, args=(3600,)).start()
        return 0


def probe_path(path):
    return Match(70, "weights.probe") if path.suffix == ".probe" or (path / "weights.probe").is_file() else None


class Loader:
    def __init__(self, settings):
        self.fail = settings.own["fail"]

    def open(self, path):
        if self.fail == "bug":
            raise IndexError("tensor 3")
        if self.fail == "unreadable":
            raise PermissionError(13, "Permission denied")
        return checkpoint(None)


def checkpoint(settings):
    from lattice_conformance.scripted_backend import ScriptedCheckpoint  # noqa: PLC0415  # heavy imports wait for use

    return ScriptedCheckpoint()


class Backend:
    def __init__(self, settings):
        if settings.own["fail"] == "make":
            raise ValueError("no such device")
        self.settings = settings

    def load(self, checkpoint, limits, progress):
        if self.settings.own["fail"] == "load":
            raise MemoryError("4 TB")
        progress(1, 2)
        from lattice_conformance.scripted_backend import ScriptedBackend  # noqa: PLC0415  # as above

        return ScriptedBackend().load(checkpoint, limits, progress)


def path_checkpoint(settings):
    print("path", settings.core["model"])
    return checkpoint(settings)


@hookimpl
def lattice_frontends():
    yield FrontendSpec(
        name="probe",
        summary="shows what it is given",
        factory=Probe,
        options=(
            Option("do", "what to do", default="show"),
            Option("level", "a number", type="int", default=3, minimum=-5, maximum=9, aliases=("probing",)),
            Option("tag", "some words", repeatable=True),
            Option("quick", "a switch", type="bool", default=False),
        ),
    )


class Observer:
    def __init__(self, settings):
        self.path = settings.own["path"]

    def observe(self, name, fields):
        if self.path is not None:
            with self.path.open("a") as file:
                file.write(f"{name}\n")


@hookimpl
def lattice_telemetry():
    options = (Option("path", "where to write names of events", type="path"),)
    yield TelemetrySpec(name="probe-observer", summary="s", factory=Observer, options=options)


@hookimpl
def lattice_grammars():
    yield GrammarSpec(name="probe-absent", summary="s", factory=dict, requires=("no_such_module",), install="pip install it")


@hookimpl
def lattice_loaders():
    options = (Option("fail", "how to fail"),)
    yield LoaderSpec(name="probe", summary="s", factory=Loader, probe=probe_path, looks_for="*.probe", options=options)


@hookimpl
def lattice_backends():
    options = (Option("fail", "how to fail"),)
    yield BackendSpec(name="probe-tensors", summary="s", factory=Backend, options=options)
    yield BackendSpec(
        name="probe-path", summary="s", factory=Backend, consumes="path", checkpoint=path_checkpoint, options=options
    )
    yield BackendSpec(name="probe-broken", summary="s", factory=Backend, consumes="nothing", options=options)
