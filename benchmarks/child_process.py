"""Runs a program of a benchmark in a process of its own, in a clean environment, and reads the JSON that it prints last."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence


def environment() -> dict[str, str]:
    """This environment without what would change either side."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("LATTICE_", "LD_", "PYTHON"))} | {
        "HF_HUB_OFFLINE": "1",
        "PYTHONUNBUFFERED": "1",
    }


def run_json(command: Sequence[str]) -> dict[str, Any]:
    """The object in the last line of what the command prints. Ends this process where that one fails."""
    print("+", *command, file=sys.stderr, flush=True)
    done = subprocess.run(command, env=environment(), stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{command[1]} ended with status {done.returncode}")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer
