"""Broken model directories through the command line: status 3, one line with file and cause, little memory.

The builders and what each must say are those of the loaders' tests; here every one is a process of its own.
"""

import subprocess
import sys

import pytest

from tests.q4.broken import BROKEN as BROKEN_Q4
from tests.safetensors.broken import BROKEN as BROKEN_SAFETENSORS

BROKEN = {f"safetensors-{name}": build for name, build in BROKEN_SAFETENSORS.items()}
BROKEN |= {f"q4-{name}": build for name, build in BROKEN_Q4.items()}
EVERY_DAY = (
    "truncated",
    "missing_shard",
    "stale",
    "wrong_shape",
    "nan_scale",
    "version_1",
    "trailing",
    "missing_config",
    "unknown_architecture",
    "traversal",
    "duplicate",
    "bomb",
    "tied",
)
"""Parts of names that the default run tries; the others are slow together."""

LIMIT = 500_000
SCRIPT = (
    "import sys; from lattice_core.cli import main; status = main(sys.argv[1:]);"
    "print(status, *(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')))"
)


def cases():
    for name in sorted(BROKEN):
        quick = any(part in name for part in EVERY_DAY)
        yield pytest.param(name, marks=[] if quick else [pytest.mark.slow], id=name)


def test_there_are_more_than_thirty_kinds_and_the_default_run_tries_many():
    assert len(BROKEN) >= 30
    for part in EVERY_DAY:
        assert any(part in name for name in BROKEN), f"no builder is named like {part}"


@pytest.mark.parametrize("name", list(cases()))
def test_a_broken_model_ends_with_status_3_and_one_line(tmp_path, name):
    directory = tmp_path / "broken-model"
    directory.mkdir()
    expected = BROKEN[name](directory)
    command = [sys.executable, "-c", SCRIPT, "--model", str(directory), "--prompt", "x"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    status, peak = (int(word) for word in done.stdout.split()[-2:])
    errors = [line for line in done.stderr.splitlines() if not line.startswith("[lattice]")]
    assert status == 3, done.stderr
    assert len(errors) == 1, done.stderr
    assert errors[0].startswith("lattice: error: ")
    assert expected in errors[0]
    assert "Traceback" not in done.stderr
    assert peak < LIMIT, f"{peak // 1024} MiB"
