"""A command of a plugin may take options of the core, and of the parts that these choose."""

import json
import os
from pathlib import Path

import pytest

SITE = Path(__file__).with_name("commands_site")


@pytest.fixture
def run(lattice):
    def call(*arguments, **environ):
        path = os.pathsep.join([str(SITE), lattice.environ["PYTHONPATH"]])
        return lattice(*arguments, LATTICE_PLUGINS="sharing,conformance", **{"PYTHONPATH": path, **environ})

    return call


def shown(done):
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_command_takes_the_options_that_it_shares_and_those_of_the_backends(run):
    found = shown(run("show", "it", "--backend", "abacus", "--context", "99", "--abacus-beads", "7"))
    assert (found["context"], found["backend"]) == (99, {"beads": 7})
    assert found["args"] == {"what": "it", "dtype": None}


def test_their_values_come_from_variables_and_the_configuration_file_too(run, lattice):
    (lattice.cwd / "lattice.toml").write_text("context = 5\n[abacus]\nbeads = 6\n")
    found = shown(run("show", "it", "--backend", "abacus"))
    assert (found["context"], found["backend"]) == (5, {"beads": 6})
    found = shown(run("show", "it", LATTICE_BACKEND="abacus", LATTICE_ABACUS_BEADS="8"))
    assert found["backend"] == {"beads": 8}


def test_the_commands_own_flag_wins_over_one_of_the_same_name(run):
    found = shown(run("show", "it", "--backend", "abacus", "--dtype", "whatever"))
    assert (found["args"]["dtype"], found["dtype"]) == ("whatever", None)


def test_a_flag_of_a_backend_that_is_not_used_is_refused(run):
    done = run("show", "it", "--backend", "abacus", "--slide-rule-beads", "7")
    assert done.returncode == 2
    assert "--slide-rule-beads is an option of backend 'slide-rule'" in done.stderr
    assert "in use: command 'show', backend 'abacus'" in done.stderr


def test_a_variable_of_a_backend_that_is_not_used_changes_nothing(run):
    found = shown(run("show", "it", "--backend", "abacus", LATTICE_SLIDE_RULE_BEADS="7"))
    assert found["backend"] == {"beads": None}


def test_a_value_that_is_out_of_range_names_the_flag(run):
    done = run("show", "it", "--backend", "abacus", "--context", "0")
    assert done.returncode == 2
    assert "--context" in done.stderr


@pytest.mark.parametrize("flag", ["--context", "--abacus-beads"])
def test_a_command_that_shares_nothing_takes_no_such_flag(run, flag):
    done = run("alone", "it", flag, "7")
    assert done.returncode == 2
    assert f"unrecognized arguments: {flag}" in done.stderr


def test_an_option_that_the_core_does_not_have_is_the_plugins_error(run):
    done = run("wrong", "it")
    assert done.returncode == 4
    assert "sharing 1.0" in done.stderr
    assert "shares the option 'colour', which the core does not have" in done.stderr


def test_the_help_shows_them_in_groups_and_leaves_out_a_backend_that_takes_no_model(run):
    text = run("show", "--help").stdout
    assert "options that commands share:" in text
    assert "options of backend 'abacus':" in text
    assert "--abacus-beads" in text
    assert "--scripted" not in text
