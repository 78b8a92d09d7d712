"""Every test of this folder runs its code in a fresh interpreter: what is loaded into a process stays there."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

VARIABLES = (
    *("LATTICE_BLAS", "LD_PRELOAD"),
    *("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_THREAD_TIMEOUT"),
)


@pytest.fixture
def python():
    """Runs a program in a fresh interpreter with warnings as errors; returns what it printed, stripped."""

    def run(code, *arguments, path=(), **environment):
        variables = {name: value for name, value in os.environ.items() if name not in VARIABLES}
        variables |= {"PYTHONPATH": os.pathsep.join(map(str, path))} if path else {}
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", code, *map(str, arguments)],
            env=variables | environment,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return run


@pytest.fixture(scope="session")
def openblas():
    """The library of the package that the extra ``cpu`` installs."""
    spec = find_spec("scipy_openblas32")
    return next(Path(spec.submodule_search_locations[0], "lib").glob("libscipy_openblas*.so"))


@pytest.fixture
def truncated(openblas, tmp_path):
    """A library that kills the process that loads it: its headers promise bytes that the file does not hold."""
    path = tmp_path / "libtruncated.so"
    path.write_bytes(openblas.read_bytes()[:3_000_000])
    return path
