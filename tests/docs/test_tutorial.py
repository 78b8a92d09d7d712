"""Does what the tutorial says, with the tutorial's own blocks: writes its files, runs its commands, compares its output."""

import os
import re
import subprocess
import sys
import sysconfig
from importlib import import_module

import mlx.core as mx
import numpy as np
import pytest

from lattice_conformance.scripted_backend import VOCAB_SIZE
from lattice_core.descriptors import Settings
from lattice_core.types import SamplingParams
from tests.docs.pages import DOCS, Page

PAGE = Page(DOCS / "tutorial" / "first-plugin.md")
_FILE = re.compile(r"`(lattice-epsilon/[\w.]+)`:$")
_END_OF_CLASS = "\n\n\n@hookimpl"


class Reader:
    """A reader in a fresh environment that has Lattice; pip takes nothing from the network."""

    def __init__(self, path):
        self.folder = path / "work"
        self.folder.mkdir()
        environment = path / "environment"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
        packages = next(environment.glob("lib/python*/site-packages"))
        # The packages of these tests too; as a site folder, so that an editable Lattice in it counts.
        (packages / "outer.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
        python = environment / "bin" / "python"
        offline = "--quiet --no-index --no-deps --no-build-isolation --disable-pip-version-check --force-reinstall"
        self._programs = path / "programs"
        self._programs.mkdir()
        self._program("python", f'exec {python} "$@"')
        self._program("lattice", f'exec {python} -P -m lattice_core "$@"')
        # An editable install needs a package that hatchling asks the network for; so the reader here installs copies.
        self._program("pip", f'[ "$1 $2" = "install -e" ] && shift 2 && exec {python} -m pip install {offline} "$@"')
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("LATTICE_", "PYTEST_", "PIP_"))}
        self.environ = clean | {
            "PATH": f"{self._programs}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(path),
            # What the page runs with a model runs without one here.
            "LATTICE_BACKEND": "scripted",
        }

    def _program(self, name, line):
        file = self._programs / name
        file.write_text(f"#!/bin/sh\n{line}\n")
        file.chmod(0o755)

    def write(self, name, text):
        file = self.folder / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)

    def add_to_class(self, name, method):
        file = self.folder / name
        source = file.read_text()
        assert source.count(_END_OF_CLASS) == 1
        file.write_text(source.replace(_END_OF_CLASS, f"\n\n{method.rstrip()}{_END_OF_CLASS}"))
        self.run("pip install -e ./lattice-epsilon")

    def run(self, commands):
        """The output of commands that all succeed."""
        done = subprocess.run(
            ["sh", "-e", "-c", commands],
            check=False,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            cwd=self.folder,
            env=self.environ,
            timeout=100,
        )
        assert done.returncode == 0, f"{commands}{done.stdout}{done.stderr}"
        return done.stdout


def in_order(lines, output):
    """Whether the lines stand in the output, each in a line after the one before."""
    rest = iter(output.splitlines())
    return all(any(line in given for given in rest) for line in lines)


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    """A reader who followed the whole page."""
    reader = Reader(tmp_path_factory.mktemp("tutorial"))
    reader.done = []
    output = ""
    for before, language, text in PAGE.blocks():
        file = _FILE.search(before)
        if language == "sh":
            output = reader.run(text)
            reader.done += text.splitlines()
        elif language == "text":
            assert in_order(text.splitlines(), output), f"the page shows\n{text}\nand the program prints\n{output}"
        elif text.startswith("    "):
            reader.add_to_class(file[1], text)
        else:
            reader.write(file[1], text)
    return reader


def test_following_the_page_gives_what_it_shows(reader):
    commands = {" ".join(line.split()[:2]) for line in reader.done}
    assert {"pip install", "lattice plugins", "lattice run", "python -m"} <= commands
    assert {file.name for file in (reader.folder / "lattice-epsilon").iterdir()} >= {
        "pyproject.toml",
        "lattice_epsilon.py",
        "test_epsilon.py",
    }


def test_the_page_counts_the_tokens_of_the_scripted_backend(reader):
    assert f"each of the {VOCAB_SIZE - 1} others" in " ".join(PAGE.text.split())


def test_a_lower_cutoff_brings_the_noise_back_as_the_page_says(reader):
    command = next(line for line in reader.done if "--epsilon-cutoff 0.005" in line)
    assert "--epsilon-cutoff 0.003" in PAGE.text
    assert reader.run(command.replace("0.005", "0.003")) != reader.run(command)


@pytest.fixture
def sampler(reader, monkeypatch):
    monkeypatch.syspath_prepend(str(reader.folder / "lattice-epsilon"))
    yield import_module("lattice_epsilon").EpsilonSampler(Settings(own={"cutoff": 0.002}))
    del sys.modules["lattice_epsilon"]


def test_the_batch_form_chooses_the_same_tokens_on_mlx(sampler):
    random = np.random.default_rng(7)
    logits = random.normal(0, 3, (64, 1000)).astype(np.float32)
    states = [sampler.new_state(SamplingParams(temperature=t), (), 1000) for t in np.linspace(0, 1.5, 64)]
    draws = random.random(64).tolist()
    alone = [sampler.sample(row, state, u) for row, state, u in zip(logits, states, draws, strict=True)]
    assert sampler.sample_batch(mx.array(logits), states, draws).tolist() == alone


def test_the_greatest_draw_takes_the_last_token_that_is_kept(sampler):
    logits = np.zeros((1, 300), np.float32)
    logits[0, 290:] = -np.inf
    u = 1 - 2**-24
    state = sampler.new_state(SamplingParams(temperature=1.0), (), 300)
    assert sampler.sample(logits[0], state, u) == 289
    assert sampler.sample_batch(logits, [state], [u]).tolist() == [289]
