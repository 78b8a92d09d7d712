import json
import os
import subprocess
import sys

import pytest

from lattice_core import __version__

HEAVY = ("mlx", "numpy", "fastapi", "starlette", "uvicorn", "tokenizers", "jinja2", "rich", "prompt_toolkit", "huggingface_hub")

LIST_MODULES = """
import json, sys
from lattice_core.cli import main
status = main({arguments!r})
print(json.dumps([status, sorted(sys.modules)]), file=sys.stderr)
"""


@pytest.mark.parametrize("arguments", [["--help"], ["plugins"], ["--version"], ["serve", "--help"], ["plugins", "show", "mlx"]])
def test_showing_help_or_plugins_imports_nothing_heavy(lattice, arguments):
    code = LIST_MODULES.format(arguments=arguments)
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], check=True, capture_output=True, text=True, cwd=lattice.cwd, env=lattice.environ
    )
    status, modules = json.loads(done.stderr.splitlines()[-1])
    assert status == 0
    assert [name for name in HEAVY if name in modules] == []
    assert "lattice_core.engine" not in modules


def seconds(command, lattice):
    """Processor time of the cheapest of some runs: starting is all computing, and the machine may be busy with other work."""
    times = []
    for _ in range(7):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=lattice.cwd, env=lattice.environ)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        times.append(usage.ru_utime + usage.ru_stime)
    return min(times)


def test_help_starts_within_its_budget(lattice):
    bare = seconds([sys.executable, "-c", "pass"], lattice)
    shown = seconds(lattice.command("--help"), lattice)
    budget = 3 * bare + 0.150
    print(f"\npython -c pass {1000 * bare:.0f} ms, lattice --help {1000 * shown:.0f} ms, budget {1000 * budget:.0f} ms")
    assert shown < budget


def test_help_shows_commands_groups_parts_and_how_else_to_set_an_option(lattice):
    text = lattice("--help").stdout
    for expected in (
        "  serve ",
        "  chat ",
        "  run ",
        "  plugins ",
        "--frontend NAME",
        "--port PORT",
        "(default: 11435)",
        "-p no:NAME",
        "LATTICE_SOME_OPTION",
        "scripted",
        "lattice plugins show NAME",
    ):
        assert expected in text, expected


def test_help_shows_the_options_of_the_parts_that_are_selected(lattice):
    assert "--probe-level" not in lattice("--help").stdout
    text = lattice("--help", "--frontend", "probe", "--backend", "scripted").stdout
    assert "options of frontend 'probe':" in text
    assert "--probe-level LEVEL, --probing LEVEL" in text
    assert "--scripted-context" in text
    assert "--openai-" not in text.replace("lattice --openai", "")


def test_help_of_a_command_shows_the_options_of_its_frontend(lattice):
    assert "--openai-max-body" in lattice("serve", "--help").stdout
    assert lattice("help", "serve").stdout == lattice("serve", "--help").stdout
    assert "usage: lattice serve [OPTIONS]" in lattice("serve", "-h").stdout


def test_help_is_shown_where_the_rest_of_the_command_line_is_wrong(lattice):
    done = lattice("--help", "--frontend", "no-such", "--port", "x")
    assert done.returncode == 0
    assert "--frontend NAME" in done.stdout


def test_nothing_at_all_prints_help_on_stderr_and_is_a_usage_error(lattice):
    done = lattice()
    assert done.returncode == 2
    assert done.stdout == ""
    assert "usage: lattice [COMMAND] [OPTIONS]" in done.stderr


@pytest.mark.parametrize("arguments", [["--version"], ["serve", "--version"], ["--port", "1", "--version"]])
def test_the_version_is_one_line(lattice, arguments):
    assert lattice(*arguments).stdout == f"lattice {__version__}\n"
