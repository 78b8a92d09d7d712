import json
import os
import time

import pytest

from lattice_conformance.scripted_tokenizer import tokenizer_json
from lattice_core.cli import entry


def shown(done):
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_frontend_gets_its_options_the_cores_and_where_they_came_from(lattice):
    (lattice.cwd / "lattice.toml").write_text('temperature = 0.5\n[probe]\nlevel = 4\ntag = ["a", "b"]\n')
    got = shown(lattice.probe("--port", "0", "--probe-quick", "--seed", "5", LATTICE_TOP_P="0.25"))
    assert got["own"] == {"do": "show", "level": 4, "tag": ["a", "b"], "quick": True}
    core = {
        "model": None,
        "host": "127.0.0.1",
        "port": 0,
        "prompt": None,
        "json": False,
        "serve": False,
        "context": None,
        "max-batch": 16,
        "max-queue": 32,
        "memory": None,
        "dtype": None,
        "max-tokens": 512,
        "temperature": 0.5,
        "top-k": 50,
        "top-p": 0.25,
        "repetition-penalty": 1.1,
        "seed": 5,
        "debug": False,
        "drain-seconds": 5.0,
    }
    assert {name: got["core"][name] for name in core} == core
    sources = {name: got["sources"][name] for name in ("port", "top-p", "temperature", "top-k")}
    assert sources == {"port": "flag", "top-p": "environment", "temperature": "config", "top-k": "default"}


def test_negative_numbers_are_values(lattice):
    assert shown(lattice.probe("--probing", "-4"))["own"]["level"] == -4
    done = lattice.probe("--probe-level", "-9")
    assert (done.returncode, done.stderr) == (2, "lattice: error: --probe-level: -9 is below the minimum -5\n")


def test_a_request_goes_through_the_engine_and_back(lattice):
    done = lattice.probe("--probe-do", "ask", "--prompt", "[[say:it works]]")
    assert (done.returncode, done.stdout) == (0, "it works\n")


def test_the_chat_format_may_be_named(lattice):
    done = lattice.probe("--probe-do", "ask", "--prompt", "[[say:yes]]", "--chat-format", "chatml")
    assert done.stdout == "yes\n"
    done = lattice.probe("--chat-format", "chatlm")
    assert done.returncode == 4
    assert "unknown chat-format 'chatlm' (did you mean chatml?)" in done.stderr


def test_grammars_are_offered_and_one_that_lacks_a_requirement_says_so(lattice):
    done = lattice.probe("--probe-do", "constrained")
    assert done.stdout.splitlines() == [
        "['blocked_constraint']",
        "the grammar 'probe-absent' is unavailable: needs no_such_module; pip install it",
    ]


def test_observers_see_what_happens(lattice):
    seen = lattice.cwd / "seen"
    assert lattice.probe("--probe-do", "ask", "--probe-observer-path", seen).returncode == 0
    assert seen.read_text() == "generation_ended\n"


def test_core_limits_reach_the_engine(lattice):
    assert shown(lattice.probe("--context", "128"))["model"] == ["scripted", "scripted", 128]
    assert shown(lattice.probe("--scripted-context", "64", "--model", "my-name"))["model"] == ["my-name", "scripted", 64]


def test_the_exit_status_is_what_the_frontend_returns(lattice):
    assert lattice.probe("--probe-do", "seven").returncode == 7


def test_loading_is_told_in_two_lines_on_stderr(lattice):
    lines = lattice.probe().stderr.splitlines()
    assert lines[0] == "[lattice] loading model 'scripted' (scripted) ..."
    assert lines[1].startswith("[lattice] model 'scripted' (scripted, context 4096) ready on script in ")
    assert len(lines) == 2


# ------------------------------------------------------------------------------------------------ which frontend

HAS_TEXT = pytest.mark.parametrize(
    ("arguments", "frontend"),
    [
        (["serve"], "openai"),
        (["chat"], "repl"),
        (["run"], "stdio"),
        (["--prompt", "x"], "stdio"),
        (["--json"], "stdio"),
        (["--serve"], "stdio"),
        (["--port", "1"], "openai"),
        (["--frontend", "repl"], "repl"),
        (["--frontend", "openai", "serve"], "openai"),
    ],
)


@HAS_TEXT
def test_commands_and_flags_choose_the_frontend(lattice, arguments, frontend):
    # Where no first-party frontend is loaded, the one that was looked for is named.
    done = lattice(*arguments, LATTICE_PLUGINS="probe")
    assert done.returncode == 4
    assert f"unknown frontend '{frontend}'" in done.stderr


def test_the_environment_may_choose_the_frontend_and_a_command_wins(lattice):
    environ = {"LATTICE_FRONTEND": "probe", "LATTICE_BACKEND": "scripted"}
    assert shown(lattice(**environ))["core"]["frontend"] == "probe"
    done = lattice("chat", **environ, LATTICE_PLUGINS="probe,conformance,samplers")
    assert "unknown frontend 'repl'" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["serve", "--frontend", "probe"],
            "`lattice serve` is --frontend openai; leave out either the command or --frontend probe",
        ),
        (["serve", "--prompt", "x"], "--prompt is for `lattice run` (--frontend stdio), not for `lattice serve`"),
        (["chat", "--json"], "--json is for `lattice run` (--frontend stdio), not for `lattice chat`"),
        (["--hots", "1"], "unknown option --hots (did you mean --host?); see `lattice --help`"),
        (["--port", "x"], "--port: 'x' is not an integer"),
        (["--port", "--host"], "--port needs a value, but --host follows"),
        (["serve", "extra"], "unexpected argument 'extra'"),
        (["--config", "absent.toml"], "configuration file absent.toml cannot be read: No such file or directory"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_exit_status_2(lattice, arguments, message):
    done = lattice(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith(f"lattice: error: {message}")
    assert done.stderr.count("\n") == 1


def test_a_flag_of_a_part_that_is_not_in_use_is_an_error_while_its_variable_is_not(lattice):
    done = lattice.probe("--probe-tensors-fail", "load")
    assert done.returncode == 2
    assert (
        "--probe-tensors-fail is an option of backend 'probe-tensors' (plugin probe, probe 1.0), which is not in use"
        in done.stderr
    )
    assert lattice.probe(LATTICE_PROBE_TENSORS_FAIL="load").returncode == 0


def test_an_unknown_key_of_the_file_is_an_error(lattice):
    (lattice.cwd / "lattice.toml").write_text("[probe]\nlevle = 4\n")
    done = lattice.probe()
    assert done.returncode == 2
    assert "lattice.toml: [probe] levle is no option (did you mean level?)" in done.stderr


def test_tables_of_plugins_that_are_left_out_are_only_mentioned(lattice):
    (lattice.cwd / "lattice.toml").write_text("[openai]\nlinger = 4\n")
    done = lattice.probe("-p", "no:openai")
    assert done.returncode == 0
    assert "no part that is loaded owns the table(s) openai" in done.stderr


# ------------------------------------------------------------------------------------------------ models


@pytest.fixture
def model(lattice):
    folder = lattice.cwd / "models" / "some-model"
    folder.mkdir(parents=True)
    (folder / "weights.probe").write_text("")
    return folder


def test_a_model_is_opened_by_the_loader_that_knows_it(lattice, model):
    base = ("--frontend", "probe", "--backend", "probe-tensors")
    done = lattice(*base, "--model", "models/some-model")
    assert shown(done)["model"] == ["some-model", "scripted", 4096]
    assert f"[lattice] loading model from {model} (scripted) ..." in done.stderr
    assert shown(lattice(*base, "--model-dir", model, "--model", "ignored"))["model"][0] == "some-model"
    assert shown(lattice(*base, "--model", model / "weights.probe", LATTICE_MODEL_DIR="/absent"))["model"][0] == "weights"
    assert shown(lattice(*base, LATTICE_MODEL_DIR=str(model)))["model"][0] == "some-model"


def test_a_file_in_the_cache_is_served_under_its_directorys_name(lattice, model):
    done = lattice(
        *("--frontend", "probe", "--backend", "probe-tensors", "--model", model / "weights.probe"),
        LATTICE_MODEL_CACHE=str(model.parent),
    )
    assert shown(done)["model"][0] == "some-model"


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--model", "models/absent"], 3, "models/absent"),
        (["--model-dir", "absent"], 3, "model directory not found: absent"),
        (["--model", "./models"], 3, "holds no model that a loader knows (looked for: "),
        (["--model", "models/some-model", "--probe-fail", "unreadable"], 3, "cannot be read: Permission denied"),
        (
            ["--model", "models/some-model", "--probe-fail", "bug"],
            4,
            "loader 'probe' (plugin probe, probe 1.0): open ",
        ),
        (
            ["--model", "models/some-model", "--probe-tensors-fail", "load"],
            3,
            "backend 'probe-tensors' (plugin probe, probe 1.0): the model could not be loaded: MemoryError: 4 TB (probe_p",
        ),
        (
            ["--model", "models/some-model", "--probe-tensors-fail", "make"],
            4,
            "backend 'probe-tensors' (plugin probe, probe 1.0): factory probe_plugin:Backend failed: ValueError: no such",
        ),
        (["--model", "models/some-model", "--loader", "prob"], 4, "unknown loader 'prob' (did you mean probe?)"),
        (
            ["--model", "models/some-model", "--tokenizer-dir", "absent"],
            3,
            "absent/tokenizer.json cannot be read: No such file",
        ),
    ],
)
def test_a_model_that_cannot_be_served_is_one_line_and_a_status(lattice, model, arguments, status, message):
    done = lattice("--frontend", "probe", "--backend", "probe-tensors", *arguments)
    last = done.stderr.splitlines()[-1]
    assert done.returncode == status, done.stderr
    assert last.startswith("lattice: error: ")
    assert message in last
    assert "Traceback" not in done.stderr


def test_the_tokenizer_may_come_from_elsewhere(lattice, model, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    base = ("--frontend", "probe", "--backend", "probe-tensors", "--model", "models/some-model", "--tokenizer", other)
    (other / "tokenizer.json").write_text("{}")
    done = lattice(*base)
    assert done.returncode == 3
    assert "tokenizer.json cannot be read" in done.stderr
    (other / "tokenizer.json").write_bytes(tokenizer_json())
    assert shown(lattice(*base))["core"]["tokenizer-dir"] == str(other)
    (other / "tokenizer_config.json").write_text("[")
    assert "tokenizer_config.json cannot be read" in lattice(*base).stderr


def test_a_backend_that_wants_a_path_gets_it(lattice, model):
    done = lattice("--frontend", "probe", "--backend", "probe-path", "--model", "models/some-model")
    assert done.stdout.splitlines()[0] == f"path {model}"


def test_a_backend_without_loader_and_checkpoint_is_a_plugin_error(lattice):
    done = lattice("--frontend", "probe", "--backend", "probe-broken")
    assert done.returncode == 4
    assert "it consumes nothing and so must have a checkpoint factory, but has none" in done.stderr


# ------------------------------------------------------------------------------------------------ failures


@pytest.mark.parametrize(
    ("do", "message"),
    [
        ("fail-early", "frontend 'probe' (plugin probe, probe 1.0): factory probe_plugin:Probe failed: ValueError: not today"),
        ("fail", "frontend 'probe' (plugin probe, probe 1.0): serve failed: RuntimeError: the door is stuck (probe_plugin.py:"),
        ("leave", "serve failed: SystemExit: 9"),
        ("nothing", "frontend 'probe' (plugin probe, probe 1.0): serve returned None, not an exit status"),
        ("no-such-thing", "serve failed: AttributeError"),
    ],
)
def test_an_error_of_a_frontend_is_attributed_and_has_no_traceback_without_debug(lattice, do, message):
    done = lattice.probe("--probe-do", do)
    assert done.returncode == 4
    assert message in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "environ", "config"),
    [(["--debug"], {}, ""), ([], {"LATTICE_DEBUG": "1"}, ""), ([], {}, "debug = true\n")],
)
def test_tracebacks_are_shown_where_debugging_is_on(lattice, arguments, environ, config):
    (lattice.cwd / "lattice.toml").write_text(config)
    done = lattice.probe("--probe-do", "fail", *arguments, **environ)
    assert done.returncode == 4
    assert "Traceback" in done.stderr
    assert "in fail" in done.stderr


def test_a_failed_load_is_status_3(lattice):
    done = lattice.probe("--scripted-fail", "load")
    assert done.returncode == 3
    assert done.stderr.splitlines()[-1].startswith("lattice: error: the scripted backend was told to fail")


def test_a_dead_engine_is_status_5_whatever_the_frontend_returns(lattice):
    assert lattice.probe("--scripted-fail", "steps", "--probe-do", "die").returncode == 5


def test_a_failed_plugin_is_mentioned_and_left_out(lattice, tmp_path):
    site = tmp_path / "site"
    info = site / "bad-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Name: bad\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[lattice]\nbad = bad_module\n")
    (site / "bad_module.py").write_text("raise RuntimeError('no')\n")
    done = lattice.probe(LATTICE_PLUGINS="", PYTHONPATH=os.pathsep.join([str(site), lattice.environ["PYTHONPATH"]]))
    assert done.returncode == 0
    assert "[lattice] warning: plugin bad (bad 1.0) failed and is left out: RuntimeError: no (bad_module.py:1)" in done.stderr


def test_a_thread_that_is_stuck_does_not_keep_the_process_alive(lattice):
    began = time.monotonic()
    assert lattice.probe("--probe-do", "stuck").returncode == 0
    assert time.monotonic() - began < 30


def test_an_unexpected_error_is_one_line_that_says_how_to_see_more(lattice, monkeypatch, capsys):
    def broken(argv, environ):
        raise ZeroDivisionError("seven")

    monkeypatch.setattr(entry, "run", broken)
    assert entry.main(["--version"]) == 1
    written = capsys.readouterr().err
    assert written.startswith("lattice: error: internal error: ZeroDivisionError: seven (test_run.py:")
    assert written.endswith("; run with --debug for the traceback\n")
