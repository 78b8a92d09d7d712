"""Runs ``lattice eval`` beside the distribution of tests in ``site``, and the naive perplexity that it is compared with."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.eval.site.counting_plugin import hashed, logits_after

SITE = Path(__file__).with_name("site")
TEXT = "The keeper of the lighthouse wrote down the wind, the waves and every ship. " * 3


def naive_nll(prefix, target):
    """-log softmax, in plain floats."""
    state = 0
    for token in prefix:
        state = hashed(state, token)
    logits = [float(value) for value in logits_after(state)]
    top = max(logits)
    return top + math.log(math.fsum(math.exp(value - top) for value in logits)) - logits[target]


class EvalRunner:
    def __init__(self, folder):
        self.folder = folder
        self.text = folder / "text.txt"
        self.text.write_text(TEXT, encoding="utf-8")
        self.model = self.model_file()
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("LATTICE_", "XDG_"))}
        self.environ = {
            **clean,
            "PYTHONPATH": os.pathsep.join(filter(None, [str(SITE), os.environ.get("PYTHONPATH")])),
            "HOME": str(folder),
            "LATTICE_PLUGINS": "counting,eval,conformance",
        }

    def model_file(self, **told):
        path = self.folder / f"{len(list(self.folder.glob('*.counting')))}.counting"
        path.write_text(json.dumps(told))
        return path

    def command(self, *arguments, backend="counting"):
        line = ["eval", "perplexity", *(["--backend", backend] if backend else []), *map(str, arguments)]
        return [sys.executable, "-P", "-m", "lattice_core", *line]

    def __call__(self, *arguments, backend="counting", text=None, model=None, **environ):
        given = ["--text", text or self.text, "--model", model or self.model, *arguments]
        return subprocess.run(
            self.command(*given, backend=backend),
            check=False,
            capture_output=True,
            text=True,
            cwd=self.folder,
            timeout=60,
            env={**self.environ, **environ},
        )

    def figures(self, *arguments, **kinds):
        done = self(*arguments, "--json", **kinds)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@pytest.fixture
def lattice_eval(tmp_path):
    return EvalRunner(tmp_path)
