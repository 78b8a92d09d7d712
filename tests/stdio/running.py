"""The real frontend over real pipes and the real engine: in this process on a thread, or as the process that users start."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

from lattice_core.cli.signals import Stop
from lattice_core.descriptors import Settings
from lattice_core.options.core_options import CORE_OPTIONS
from lattice_stdio.frontend import StdioFrontend

DEADLINE = 30.0
CORE = {option.name: option.default for option in CORE_OPTIONS}


def settings(**core) -> Settings:
    return Settings(core=CORE | {name.replace("_", "-"): value for name, value in core.items()})


class Lines:
    """Lines from a file descriptor, with a deadline for each."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._buffer = b""

    def read(self) -> bytes | None:
        """The next line; None at the end."""
        while b"\n" not in self._buffer:
            ready, _, _ = select.select([self.fd], [], [], DEADLINE)
            assert ready, f"no line within {DEADLINE} s; so far: {self._buffer!r}"
            block = os.read(self.fd, 65536)
            if not block:
                assert self._buffer == b""
                return None
            self._buffer += block
        line, self._buffer = self._buffer.split(b"\n", 1)
        return line

    def event(self) -> dict | None:
        """The next event; None at the end."""
        line = self.read()
        if line is None:
            return None
        assert line.startswith(b"@@lattice ")
        return json.loads(line.removeprefix(b"@@lattice "))

    def answer(self) -> list[dict]:
        """The events of one request: up to a line with the figures or an error."""
        events = []
        while True:
            event = self.event()
            assert event is not None, f"the output ended inside an answer: {events}"
            events.append(event)
            if event["ev"] == "error" or event.get("done"):
                return events


class Running:
    """The frontend on a thread of this process."""

    def __init__(self, engine, **core) -> None:
        self.engine = engine
        self.stop = Stop()
        stdin, self._stdin = os.pipe()
        self._stdout, stdout = os.pipe()
        self._theirs = [stdin, stdout]
        self.lines = Lines(self._stdout)
        self.status = None
        self.frontend = StdioFrontend(settings(**core), stdin, stdout)
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        try:
            self.status = self.frontend.serve(self.engine, self.stop)
        finally:
            for fd in self._theirs:
                os.close(fd)

    def send(self, request) -> None:
        data = request if isinstance(request, bytes) else json.dumps(request).encode()
        os.write(self._stdin, data + b"\n")

    def ask(self, request) -> list[dict]:
        self.send(request)
        return self.lines.answer()

    def end_input(self) -> None:
        if self._stdin >= 0:
            os.close(self._stdin)
            self._stdin = -1

    def close_output(self) -> None:
        if self._stdout >= 0:
            os.close(self._stdout)
            self._stdout = -1

    def wait(self) -> int:
        self._thread.join(DEADLINE)
        assert not self._thread.is_alive()
        return self.status

    def close(self) -> None:
        self.end_input()
        self.stop.set()
        self.close_output()
        self._thread.join(DEADLINE)


@contextmanager
def lattice(*arguments, **kwargs):
    """The command in a process of its own, over the scripted backend."""
    process = subprocess.Popen(
        [sys.executable, "-m", "lattice_core", "--backend", "scripted", *arguments],
        stdin=kwargs.pop("stdin", subprocess.PIPE),
        stdout=kwargs.pop("stdout", subprocess.PIPE),
        stderr=subprocess.PIPE,
        **kwargs,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


def ended(process) -> tuple[int, str]:
    """Exit status and stderr of a process that ends by itself."""
    errors = process.stderr.read().decode()
    return process.wait(DEADLINE), errors


def eventually(condition) -> None:
    """Wait for something that another thread does and tells nobody."""
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)
