"""What several test folders share: the demo model, and real processes of ``lattice``."""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

DEMO_MODEL = "smollm2-135m"
DEMO_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.fixture(scope="session")
def smollm2_path():
    """The demo model's file; fetched when it is not there, and a failure when it cannot be had."""
    cache = Path(os.environ.get("LATTICE_MODEL_CACHE") or Path.home() / ".lattice" / "models")
    path = cache / DEMO_MODEL / DEMO_FILE
    if not path.is_file():
        pull = subprocess.run([sys.executable, "-m", "lattice_core", "pull", DEMO_MODEL], capture_output=True, text=True)
        assert path.is_file(), f"the demo model is needed: `lattice pull {DEMO_MODEL}` said\n{pull.stderr}"
    return path


class LatticeProcess:
    """A running ``lattice``: lines of its output as they come, and a way to stop it."""

    def __init__(self, *arguments, env=None, stdin=subprocess.DEVNULL):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "lattice_core", *arguments],
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            env={**os.environ, **(env or {})},
        )
        self.errors = []
        self._lines = queue.Queue()
        self._threads = [
            threading.Thread(target=self._read_output, daemon=True),
            threading.Thread(target=self._read_errors, daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def _read_output(self):
        for line in self.process.stdout:
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def _read_errors(self):
        self.errors.extend(self.process.stderr)

    def line(self, timeout=60.0):
        """The next line of standard output; None at its end."""
        return self._lines.get(timeout=timeout)

    def event(self, name=None, timeout=60.0):
        """The next ``@@lattice`` event, or the next one of this name."""
        while (line := self.line(timeout)) is not None:
            event = json.loads(line.removeprefix("@@lattice "))
            if name is None or event["ev"] == name:
                return event
        raise AssertionError(f"the output ended before the event {name}:\n{''.join(self.errors)}")

    def send(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def wait(self, timeout=60.0):
        return self.process.wait(timeout)

    def stop(self, timeout=30.0):
        """End it as a user would; returns the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = self.process.wait()
        for thread in self._threads:
            thread.join(5)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()
        return status


@pytest.fixture(scope="session")
def start_lattice():
    """Starts processes of ``lattice`` and ends them with the session."""
    running = []

    def start(*arguments, **kinds):
        running.append(LatticeProcess(*arguments, **kinds))
        return running[-1]

    yield start
    for process in running:
        process.stop()
