"""Runs ``lattice`` beside the distribution of tests in ``site``, whose frontend shows what it is given."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

NEEDED = "probe,conformance,samplers,chat"
"""Plugins of a run over the scripted backend; nothing else may change what such a run prints."""

SITE = Path(__file__).with_name("site")


class Runner:
    """Runs ``lattice`` in an empty folder with an empty home."""

    def __init__(self, path: Path):
        self._started = []
        self.home = path / "home"
        self.cwd = path / "cwd"
        for folder in (self.home, self.cwd):
            folder.mkdir()
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("LATTICE_", "XDG_"))}
        python_path = os.pathsep.join(filter(None, [str(SITE), os.environ.get("PYTHONPATH")]))
        self.environ = {**clean, "PYTHONPATH": python_path, "HOME": str(self.home)}

    def command(self, *arguments):
        return [sys.executable, "-P", "-m", "lattice_core", *map(str, arguments)]

    def __call__(self, *arguments, **environ):
        """Run to the end."""
        return subprocess.run(
            self.command(*arguments),
            check=False,
            capture_output=True,
            text=True,
            cwd=self.cwd,
            timeout=60,
            env={**self.environ, **environ},
        )

    def probe(self, *arguments, **environ):
        """Run the frontend of tests over the scripted backend."""
        return self("--frontend", "probe", "--backend", "scripted", *arguments, **{"LATTICE_PLUGINS": NEEDED, **environ})

    def start(self, *arguments, **environ):
        """Start and return the process; its outputs are pipes of text."""
        process = subprocess.Popen(
            self.command("--frontend", "probe", "--backend", "scripted", *arguments),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.cwd,
            env={**self.environ, "LATTICE_PLUGINS": NEEDED, **environ},
        )
        self._started.append(process)
        return process

    def end(self):
        """Leave no process behind where a test has failed."""
        for process in self._started:
            process.kill()
            process.wait()
            for stream in (process.stdout, process.stderr):
                stream.close()


@pytest.fixture
def lattice(tmp_path):
    """A fresh runner."""
    runner = Runner(tmp_path)
    yield runner
    runner.end()
