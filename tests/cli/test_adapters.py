"""``--lora``: what it loads before the run is ready, and how it ends where that cannot be."""

import json
import re

import pytest


@pytest.fixture
def write(lattice):
    def written(name="fr.scripted", fingerprint="fr", **told):
        (lattice.cwd / name).write_text(json.dumps({"fingerprint": fingerprint, **told}))
        return name

    return written


def test_an_adapter_without_a_name_serves_from_the_first_request_on(lattice, write):
    done = lattice.probe("--probe-do", "ask", "--prompt", "[[say:hi]]", "--lora", write())
    assert (done.returncode, done.stdout) == (0, "hi<fr>\n")


def test_an_adapter_with_a_name_waits_to_be_named(lattice, write):
    done = lattice.probe("--probe-do", "ask", "--prompt", "[[say:hi]]", "--lora", f"fr={write()}")
    assert (done.returncode, done.stdout) == (0, "hi\n")


def test_adapters_are_loaded_before_the_model_is_said_to_be_ready(lattice, write):
    lines = lattice.probe(
        "--lora", f"a={write()}", f"--lora=b={write('b.scripted', 'b', nbytes=3_000_000)}"
    ).stderr.splitlines()
    assert lines[1:3] == ["[lattice] adapter 'a' (scripted, 8 B) is loaded", "[lattice] adapter 'b' (scripted, 2.9M) is loaded"]
    assert lines[3].startswith("[lattice] model 'scripted' (scripted, context 4096) ready on script")


def test_variable_and_configuration_file_name_adapters_too(lattice, write):
    done = lattice.probe(
        "--probe-do", "ask", "--prompt", "[[say:hi]]", LATTICE_LORA=f"x={write()},{write('de.scripted', 'de')}"
    )
    assert done.stdout == "hi<de>\n"
    (lattice.cwd / "lattice.toml").write_text('lora = ["fr.scripted"]\n')
    assert lattice.probe("--probe-do", "ask", "--prompt", "[[say:hi]]").stdout == "hi<fr>\n"


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--lora", "none"], 3, "--lora: adapter not found: none; check the path"),
        (["--lora", "x=none/at/all"], 3, "--lora: adapter not found: none/at/all; check the path"),
        (["--lora", "."], 3, r"--lora: \. holds no adapter that a loader knows \(asked: scripted\)"),
        (["--lora", "text.scripted"], 3, r"adapter 'text': text\.scripted is not JSON"),
        (["--lora", "module.scripted"], 3, r"adapter 'module': the adapter changes layers\.0\.mlp, which"),
        (["--lora", "fr.scripted", "--no-scripted-adapters"], 3, r"takes no adapters; use --backend mlx"),
        (["--lora", "fr.scripted", "--max-resident-adapter-bytes", "7"], 3, "'fr' takes 8 B, and of the 7 B that"),
        (["--lora", "a=fr.scripted", "--lora", "fr.scripted", "--max-resident-adapters", "1"], 3, "1 adapters are resident"),
        (
            ["--lora", "bug.scripted"],
            4,
            r"loader 'scripted' \(plugin conformance, .*\): open_adapter bug\.scripted failed: Scripted",
        ),
        (["--lora", "scripted=fr.scripted"], 2, "'scripted' is the name of the model itself"),
        (["--lora", "a b=fr.scripted"], 2, "'a b' is no name"),
        (["--lora", "fr.scripted", "--lora", "text.scripted"], 2, "both have no name"),
        (["--max-resident-adapters", "0"], 2, "--max-resident-adapters: 0 is below the minimum 1"),
    ],
)
def test_one_that_cannot_be_loaded_ends_the_start_with_one_line(lattice, write, arguments, status, message):
    write()
    write("module.scripted", module="layers.0.mlp")
    write("bug.scripted", fail="open")
    (lattice.cwd / "text.scripted").write_text("fr")
    done = lattice.probe("--probe-do", "ask", *arguments)
    assert (done.returncode, done.stdout) == (status, "")
    [line] = [line for line in done.stderr.splitlines() if line.startswith("lattice: error: ")]
    assert re.search(message, line)
    assert "Traceback" not in done.stderr
    assert "ready" not in done.stderr


def test_one_that_is_not_there_is_noticed_before_the_model_is_loaded(lattice):
    assert "loading" not in lattice.probe("--lora", "none").stderr


def test_a_model_that_is_not_there_is_not_looked_for_among_adapters(lattice):
    done = lattice("--model", ".", "--frontend", "probe", LATTICE_PLUGINS="probe,conformance,samplers,chat,mlx,gguf")
    assert done.returncode != 0
    assert "scripted" not in done.stderr
