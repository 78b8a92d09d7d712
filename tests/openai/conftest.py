"""Runs the server for tests: in this process over the scripted engine, or as a process of its own."""

from __future__ import annotations

import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, contextmanager

import httpx
import pytest
from attrs import define, field

from lattice_conformance.harness import scripted_engine
from lattice_conformance.scripted_backend import ScriptedBackend
from lattice_core.cli.signals import Stop
from lattice_core.descriptors import Settings
from lattice_core.options.core_options import CORE_OPTIONS
from lattice_openai.server import OpenAIFrontend

TIMEOUT = 20.0
CORE = {option.name: option.default for option in CORE_OPTIONS} | {"port": 0}


def settings_of(*, core=None, explicit=(), **own):
    names = {name.replace("_", "-"): value for name, value in own.items()}
    return Settings(own=names, core={**CORE, **(core or {})}, sources=dict.fromkeys(explicit, "flag"))


def wait_until(condition, timeout=TIMEOUT):
    """Wait for a condition that has no event to wait for."""
    deadline = time.monotonic() + timeout
    while not (value := condition()):
        assert time.monotonic() < deadline, "the condition did not come true"
        time.sleep(0.005)
    return value


@define
class Lines:
    """Telemetry events as they arrive from a file descriptor or pipe."""

    events: list = field(factory=list)
    raw: list = field(factory=list)
    _changed: threading.Condition = field(factory=threading.Condition)

    def read(self, file):
        for line in file:
            with self._changed:
                self.raw.append(line)
                assert line.startswith("@@lattice "), line
                self.events.append(json.loads(line.removeprefix("@@lattice ")))
                self._changed.notify_all()

    def wait(self, count=1, **wanted):
        """The first ``count`` events with these members, once they are there."""

        def found():
            return [event for event in self.events if wanted.items() <= event.items()]

        with self._changed:
            assert self._changed.wait_for(lambda: len(found()) >= count, TIMEOUT), (wanted, self.events)
            return found()[:count]


@define
class Served:
    """A server in this process."""

    engine: object
    backend: object
    stop: object
    telemetry: Lines
    port: int
    _thread: threading.Thread
    _results: queue.Queue

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    @property
    def saw(self):
        return self.backend.model.log.saw

    def chat(self, content="hi", **body):
        return httpx.post(f"{self.url}/v1/chat/completions", json=chat_body(content, **body), timeout=TIMEOUT)

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=TIMEOUT)

    def send_chat(self, content="hi", **body):
        """Send a chat request over a raw socket and return the socket, so that the test can leave when it likes."""
        connection = self.connect()
        connection.sendall(self.chat_bytes(content, **body))
        return connection

    def chat_bytes(self, content="hi", **body):
        """A whole chat request as it stands on the wire."""
        return raw_request(json.dumps(chat_body(content, **body)).encode())

    def result(self):
        """What ``serve`` returned."""
        self._thread.join(TIMEOUT)
        return self._results.get(timeout=0)


def chat_body(content="hi", **body):
    return {"messages": [{"role": "user", "content": content}], **body}


def raw_request(body):
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


@pytest.fixture(name="wait_until")
def _wait_until():
    return wait_until


@pytest.fixture
def frontend_on():
    """Make a frontend for a host and port without serving it."""
    return lambda port, host="127.0.0.1": OpenAIFrontend(settings_of(core={"port": port, "host": host}))


@pytest.fixture
def serve():
    """Start servers over scripted engines; all of them are stopped at the end of the test."""
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(_served(**options))


@pytest.fixture
def served(serve):
    return serve()


@pytest.fixture(scope="module")
def shared():
    """One server for all tests of a module that do not count what it did."""
    with _served() as served:
        yield served


@contextmanager
def _served(*, gate=None, core=None, explicit=(), engine=None, backend_options=None, **options):
    config = {name: options.pop(name) for name in list(options) if name in {"max_queue", "limits", "slow_reader_seconds"}}
    sampler = {"sampler": options.pop("sampler")} if "sampler" in options else {}
    reader, writer = os.pipe()
    lines, stop, results, backend = Lines(), Stop(), queue.Queue(), None
    with ExitStack() as stack:
        if engine is None:
            backend = ScriptedBackend(gate=gate, **(backend_options or {}))
            engine = stack.enter_context(scripted_engine(backend=backend, **sampler, **config))
        frontend = OpenAIFrontend(settings_of(core=core, explicit=explicit, **options), telemetry_fd=writer)
        pipe = stack.enter_context(os.fdopen(reader, encoding="utf-8"))
        reading = threading.Thread(target=lines.read, args=(pipe,), daemon=True)
        reading.start()

        def run():
            try:
                results.put(frontend.serve(engine, stop))
            except BaseException as error:
                results.put(error)
                raise

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            port = lines.wait(ev="ready")[0]["port"]
            yield Served(engine, backend, stop, lines, port, thread, results)
        finally:
            stop.set()
            if backend is not None:
                backend.release()
            thread.join(TIMEOUT)
            os.close(writer)
            reading.join(TIMEOUT)
            assert not thread.is_alive()


@define
class Process:
    """A server in a process of its own."""

    popen: subprocess.Popen
    telemetry: Lines
    errors: list
    _readers: list

    @property
    def port(self):
        return self.telemetry.wait(ev="ready")[0]["port"]

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def terminate(self):
        self.popen.send_signal(signal.SIGTERM)

    def wait(self):
        status = self.popen.wait(TIMEOUT)
        for reader in self._readers:
            reader.join(TIMEOUT)
        return status

    @property
    def stderr(self):
        return "".join(self.errors)


@pytest.fixture
def start_process(tmp_path):
    """Start ``lattice --frontend openai --backend scripted`` with further arguments; killed at the end of the test."""
    started = []

    def start(*args, env=None):
        command = [sys.executable, "-m", "lattice_core", "--frontend", "openai", "--backend", "scripted", *args]
        environment = {**os.environ, "HOME": str(tmp_path), **(env or {})}
        popen = subprocess.Popen(
            command,
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        lines, errors = Lines(), []
        readers = [
            threading.Thread(target=lines.read, args=(popen.stdout,), daemon=True),
            threading.Thread(target=lambda: errors.extend(popen.stderr), daemon=True),
        ]
        for reader in readers:
            reader.start()
        process = Process(popen, lines, errors, readers)
        started.append(process)
        return process

    yield start
    for process in started:
        if process.popen.poll() is None:
            process.popen.kill()
        process.wait()
        process.popen.stdout.close()
        process.popen.stderr.close()
