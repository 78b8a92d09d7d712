import math
import signal
import subprocess

import pytest

from lattice_conformance.scripted_tokenizer import IM_START_ID
from lattice_eval.windows import windows_of
from tests.eval.conftest import TEXT, naive_nll

IDS = list(TEXT.encode())


def naive_perplexity(ids, window, stride):
    values = [
        naive_nll(ids[item.start : place], ids[place])
        for item in windows_of(len(ids), window, stride)
        for place in range(item.first_scored, item.stop)
    ]
    mean = math.fsum(values) / len(values)
    variance = math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return math.exp(mean), mean, math.sqrt(variance / len(values)), len(values)


def test_the_figures_are_those_of_a_naive_computation(lattice_eval):
    found = lattice_eval.figures("--window", 40, "--stride", 10)
    expected, nll, error, scored = naive_perplexity(IDS, 40, 10)
    assert found["perplexity"] == pytest.approx(expected, rel=1e-9)
    assert found["nll"] == pytest.approx(nll, rel=1e-9)
    assert found["nll_standard_error"] == pytest.approx(error, rel=1e-9)
    assert found["perplexity_standard_error"] == pytest.approx(expected * error, rel=1e-9)
    assert found["scored"] == scored == len(IDS) - 1
    assert found["windows"] == len(list(windows_of(len(IDS), 40, 10)))
    assert (found["tokens"], found["bos_id"], found["format"]) == (len(IDS), None, "counting")
    assert found["seconds"] > 0
    assert found["tokens_per_second"] == pytest.approx(scored / found["seconds"])


def test_without_sizes_the_window_is_the_context_and_the_stride_half_of_it(lattice_eval):
    found = lattice_eval.figures()
    assert (found["window"], found["stride"]) == (64, 32)
    assert found["perplexity"] == pytest.approx(naive_perplexity(IDS, 64, 32)[0], rel=1e-9)


def test_the_default_window_is_no_larger_than_2048_tokens(lattice_eval):
    found = lattice_eval.figures("--max-tokens", 30, model=lattice_eval.model_file(context=100_000))
    assert (found["window"], found["stride"], found["windows"]) == (2048, 1024, 1)


def test_only_the_first_tokens_are_used_where_that_is_asked_for(lattice_eval):
    found = lattice_eval.figures("--max-tokens", 30)
    assert (found["tokens"], found["scored"]) == (30, 29)
    assert found["perplexity"] == pytest.approx(naive_perplexity(IDS[:30], 64, 32)[0], rel=1e-9)


def test_the_tokenizers_own_first_token_is_added_once_and_said(lattice_eval):
    model = lattice_eval.model_file(tokenizer_config={"bos_token": "<|im_start|>", "add_bos_token": True})
    found = lattice_eval.figures(model=model)
    assert (found["bos_id"], found["tokens"]) == (IM_START_ID, len(IDS) + 1)
    assert found["perplexity"] == pytest.approx(naive_perplexity([IM_START_ID, *IDS], 64, 32)[0], rel=1e-9)
    assert f"token {IM_START_ID} added at the beginning" in lattice_eval(model=model).stdout


def test_people_get_lines(lattice_eval):
    done = lattice_eval()
    expected, _, error, _ = naive_perplexity(IDS, 64, 32)
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == f"perplexity  {expected:.4f} +/- {expected * error:.4f}"
    assert "no beginning-of-sequence token added" in done.stdout
    assert done.stderr == ""


def test_the_text_may_come_from_standard_input(lattice_eval):
    line = lattice_eval.command("--text", "-", "--model", lattice_eval.model)
    done = subprocess.run(line, input=TEXT.encode(), capture_output=True, env=lattice_eval.environ, timeout=60)
    assert done.returncode == 0, done.stderr
    assert b"perplexity" in done.stdout


def test_options_come_from_flags_variables_and_the_configuration_file_alike(lattice_eval):
    assert lattice_eval.figures("--context", 20)["window"] == 20
    assert lattice_eval.figures(LATTICE_CONTEXT="21")["window"] == 21
    (lattice_eval.folder / "lattice.toml").write_text("context = 22\n")
    assert lattice_eval.figures()["window"] == 22
    assert lattice_eval("--counting-fail", "load").returncode == 3


def test_the_model_may_be_named_by_a_variable(lattice_eval):
    line = lattice_eval.command("--text", lattice_eval.text, "--json")
    for variable in ("LATTICE_MODEL", "LATTICE_MODEL_DIR"):
        environ = {**lattice_eval.environ, variable: str(lattice_eval.model)}
        done = subprocess.run(line, capture_output=True, text=True, env=environ, timeout=60)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("backend", ["counting", "describing-counting"])
def test_a_window_beyond_the_context_is_refused(lattice_eval, backend):
    done = lattice_eval("--window", 65, backend=backend)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "lattice: error: --window 65: the model's context is 64 tokens; use --window 64 or less\n"


def test_what_is_impossible_is_said_before_the_model_is_loaded(lattice_eval):
    done = lattice_eval("--window", 65, "--describing-counting-fail", "load", backend="describing-counting")
    assert done.returncode == 2
    assert "--window 65" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--window", "32", "--stride", "33"], "--stride 33 exceeds the window of 32 tokens"),
        (["--stride", "65"], "--stride 65 exceeds the window of 64 tokens"),
        (["--window", "1"], "--window 1: the least is 2"),
        (["--stride", "0"], "--stride 0: the least is 1"),
        (["--max-tokens", "1"], "--max-tokens 1: the least is 2"),
        (["--window", "x"], "argument --window: invalid int value: 'x'"),
        (["--stdio-x"], "unrecognized arguments: --stdio-x"),
        (["--describing-counting-fail", "nan"], "which is not in use here"),
    ],
)
def test_arguments_that_cannot_be_met_are_refused(lattice_eval, arguments, message):
    done = lattice_eval(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_text_of_one_token_is_refused(lattice_eval):
    lattice_eval.text.write_text("a")
    done = lattice_eval()
    assert done.returncode == 2
    assert "has 1 tokens: perplexity needs at least 2" in done.stderr


def test_a_text_that_is_not_utf_8_is_refused(lattice_eval):
    lattice_eval.text.write_bytes(b"abc\xff")
    done = lattice_eval()
    assert done.returncode == 2
    assert "byte 3 (0xff) is not UTF-8" in done.stderr


def test_a_backend_that_loads_no_tensors_is_refused(lattice_eval):
    done = lattice_eval(backend="scripted")
    assert done.returncode == 2
    assert "--backend scripted consumes nothing" in done.stderr


def test_a_model_that_is_not_there_is_said_so(lattice_eval):
    done = lattice_eval(model="./absent")
    assert done.returncode == 3
    assert "model directory not found" in done.stderr


@pytest.mark.parametrize(
    ("fail", "status", "message"),
    [
        ("load", 3, "the backend could not load the model: RuntimeError: out of beads"),
        ("nan", 1, "no finite probability"),
        ("raise", 1, "the model failed at a forward pass: RuntimeError: the beads came off"),
    ],
)
def test_a_model_that_fails_is_one_line(lattice_eval, fail, status, message):
    done = lattice_eval("--counting-fail", fail)
    assert (done.returncode, done.stdout) == (status, "")
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_ctrl_c_ends_it_at_once_even_while_the_model_computes(lattice_eval):
    line = lattice_eval.command("--text", lattice_eval.text, "--model", lattice_eval.model, "--counting-fail", "hang")
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=lattice_eval.environ)
    try:
        assert process.stdout.readline() == "hanging\n"
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=30)
    finally:
        process.kill()
        process.communicate()
    assert (process.returncode, output) == (130, "")
    assert errors == "[lattice] stopped; nothing was measured to the end\n"
