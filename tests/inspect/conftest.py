"""Runs ``lattice inspect`` beside the distribution of tests in ``site``."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SITE = Path(__file__).with_name("site")


class InspectRunner:
    def __init__(self, folder):
        self.folder = folder
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("LATTICE_", "XDG_"))}
        self.environ = {
            **clean,
            "PYTHONPATH": os.pathsep.join(filter(None, [str(SITE), os.environ.get("PYTHONPATH")])),
            "HOME": str(folder),
        }

    def sketch(self, **told):
        path = self.folder / "model.sketch"
        path.write_text(json.dumps(told))
        return path

    def __call__(self, *arguments, backend="sketch", plugins="sketch,inspect,conformance", **environ):
        chosen = ["--backend", backend] if backend else []
        return subprocess.run(
            [sys.executable, "-P", "-m", "lattice_core", "inspect", *map(str, arguments), *chosen],
            check=False,
            capture_output=True,
            text=True,
            cwd=self.folder,
            timeout=60,
            env={**self.environ, "LATTICE_PLUGINS": plugins, **environ},
        )

    def report(self, *arguments, status=0, **kinds):
        done = self(*arguments, "--json", **kinds)
        assert done.returncode == status, done.stderr
        return json.loads(done.stdout)


@pytest.fixture
def lattice_inspect(tmp_path):
    return InspectRunner(tmp_path)
