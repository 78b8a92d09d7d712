import json

import pytest

OPTIONS = """
from lattice_core import hookimpl
from lattice_core.descriptors import Option, SamplerSpec

@hookimpl
def lattice_samplers():
    yield SamplerSpec(name={name!r}, summary="of tests", factory="{factory}", requires={requires}, install="pip install it",
                      options=(Option("level", "how much", type="int", default=3, minimum=1, maximum=9{more}),))
"""


def options_plugin(name, *, factory="builtins:dict", requires="()", more=""):
    return OPTIONS.format(name=name, factory=factory, requires=requires, more=more)


def test_the_list_shows_every_plugin_with_its_fate(site):
    site.good("good-dist", "good_module", "good-sampler")
    site.install("bad-dist", "bad_module", "raise RuntimeError('no')")
    done = site.lattice("-p", "no:openai", "plugins")
    assert done.returncode == 0
    rows = {line.split()[0]: line for line in done.stdout.splitlines() if line}
    assert rows["good_module"].split() == ["good_module", "loaded", "good-dist", "1.0", "sampler", "good-sampler"]
    assert "failed" in rows["bad_module"]
    assert "RuntimeError: no (bad_module.py:1)" in rows["bad_module"]
    assert "disabled" in rows["openai"]


def test_the_list_as_json_holds_parts_and_options(site):
    site.install("good-dist", "good_module", options_plugin("measured"))
    done = site.lattice("plugins", "--json")
    (plugin,) = [entry for entry in json.loads(done.stdout) if entry["name"] == "good_module"]
    assert (plugin["distribution"], plugin["version"], plugin["status"], plugin["cause"]) == ("good-dist", "1.0", "loaded", "")
    (part,) = plugin["provides"]
    assert (part["kind"], part["name"], part["unavailable"]) == ("sampler", "measured", "")
    (option,) = part["options"]
    assert option["flags"] == ["--measured-level"]
    assert option["variables"] == ["LATTICE_MEASURED_LEVEL"]
    assert option["config"] == {"table": "measured", "key": "level"}


@pytest.mark.parametrize("name", ["good_module", "good-dist", "measured", "good-dist/measured"])
def test_show_finds_a_plugin_by_its_own_its_distributions_or_its_parts_name(site, name):
    site.install("good-dist", "good_module", options_plugin("measured", requires="('no_such_module',)"))
    done = site.lattice("plugins", "show", name)
    assert done.returncode == 0
    assert "good-dist 1.0" in done.stdout
    assert "requires no_such_module: unavailable: needs no_such_module; pip install it" in done.stdout
    assert "--measured-level  (int; at least 1; at most 9; default 3)" in done.stdout
    assert "LATTICE_MEASURED_LEVEL; in lattice.toml: [measured] level" in done.stdout


def test_show_of_an_unknown_name_is_an_error_with_the_nearest(site):
    done = site.lattice("plugins", "show", "opnai")
    assert done.returncode == 4
    assert "no plugin is named 'opnai' (did you mean openai?)" in done.stderr


def test_show_with_debug_prints_the_traceback_of_a_failure(site):
    site.install("bad-dist", "bad_module", "def f():\n    raise RuntimeError('no')\nf()")
    assert "in f" in site.lattice("plugins", "show", "bad_module", "--debug").stdout
    assert "in f" not in site.lattice("plugins", "show", "bad_module").stdout


def test_doctor_says_ok_where_all_works(site):
    site.install("good-dist", "good_module", options_plugin("measured"))
    done = site.lattice("plugins", "doctor", "good_module")
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == "0 broken of 2 checked"


def test_doctor_calls_a_missing_requirement_unavailable_and_not_broken(site):
    site.install("good-dist", "good_module", options_plugin("measured", factory="gone:x", requires="('no_such_module',)"))
    done = site.lattice("plugins", "doctor", "good_module")
    assert done.returncode == 0
    assert "unavailable  good_module (good-dist 1.0): sampler measured: needs no_such_module; pip install it" in done.stdout


LOADER = """
from lattice_core import hookimpl
from lattice_core.descriptors import LoaderSpec

@hookimpl
def lattice_loaders():
    yield LoaderSpec(name="npz", summary="s", factory=dict, probe=dict, looks_for="x", adapter_probe="gone:probe")
"""


@pytest.mark.parametrize(
    ("source", "cause"),
    [
        ("raise RuntimeError('no')", "plugin: RuntimeError: no"),
        (options_plugin("measured", factory="gone:x"), "factory gone:x: ModuleNotFoundError: No module named 'gone'"),
        (options_plugin("measured", factory="json:gone"), "factory json:gone: AttributeError"),
        (options_plugin("measured", factory="json:__name__"), "factory json:__name__ is not callable"),
        (LOADER, "adapter_probe gone:probe: ModuleNotFoundError: No module named 'gone'"),
    ],
)
def test_doctor_exits_with_4_where_something_is_broken(site, source, cause):
    site.install("bad-dist", "bad_module", source)
    done = site.lattice("plugins", "doctor", "bad_module")
    assert done.returncode == 4
    assert cause in done.stdout
    report = json.loads(site.lattice("plugins", "doctor", "bad_module", "--json").stdout)
    assert [entry["state"] for entry in report if cause.rpartition(": ")[2] in entry["cause"]] == ["broken"]


def test_the_command_works_in_strict_mode_while_others_raise(site):
    site.install("bad-dist", "bad_module", "raise RuntimeError('no')")
    assert site.lattice("plugins", LATTICE_STRICT_PLUGINS="1").returncode == 0
    done = site.lattice("--help", LATTICE_STRICT_PLUGINS="1", LATTICE_PLUGINS="bad_module")
    assert done.returncode == 4
    cause = "(LATTICE_STRICT_PLUGINS is set): RuntimeError: no (bad_module.py:1)"
    assert done.stderr == f"lattice: error: plugin bad_module (bad-dist 1.0) failed {cause}\n"


def test_names_that_match_no_plugin_are_shown_and_are_an_error_elsewhere(site):
    done = site.lattice("-p", "no:openia", "plugins")
    assert done.returncode == 0
    assert "openia" in done.stdout.splitlines()[-1]
    done = site.lattice("-p", "no:openia", "--backend", "scripted")
    assert done.returncode == 4
    assert "no plugin is named 'openia' (did you mean openai?)" in done.stderr


# ------------------------------------------------------------------------------------------------ options that collide


def test_a_stranger_that_claims_a_flag_of_the_core_fails_and_the_message_names_both(site):
    site.install("bad-dist", "bad_module", options_plugin("measured", more=", aliases=('port',)"))
    (plugin,) = [entry for entry in json.loads(site.lattice("plugins", "--json").stdout) if entry["name"] == "bad_module"]
    assert plugin["status"] == "failed"
    assert plugin["cause"].startswith(
        "--port is claimed both by lattice itself and by sampler 'measured' (plugin bad_module, bad-dist 1.0)"
    )
    assert site.lattice("--help").returncode == 0


def test_a_stranger_that_claims_a_variable_of_the_first_party_fails(site):
    site.install("bad-dist", "bad_module", options_plugin("measured", more=", env_aliases=('LATTICE_PORT',)"))
    assert "LATTICE_PORT is claimed both by lattice itself" in site.lattice("plugins").stdout


def test_strangers_that_claim_one_flag_are_an_error_that_names_both_until_one_is_left_out(site):
    site.install("one-dist", "one_module", options_plugin("one", more=", aliases=('level',)"))
    site.install("two-dist", "two_module", options_plugin("two", more=", aliases=('level',)"))
    done = site.lattice("--backend", "scripted", "--port", "99999")
    assert done.returncode == 4
    assert "--level is claimed both by sampler 'one' (plugin one_module, one-dist 1.0)" in done.stderr
    assert "sampler 'two' (plugin two_module, two-dist 1.0)" in done.stderr
    assert site.lattice("plugins").returncode == 0
    assert site.lattice("plugins", "doctor").returncode == 4
    done = site.lattice("-p", "no:two-dist", "--backend", "scripted", "--port", "99999")
    assert "--port: 99999 is above the maximum 65535" in done.stderr


def test_options_of_strangers_that_share_a_name_carry_the_distribution(site):
    site.install("one-dist", "one_module", options_plugin("same"))
    site.install("two-dist", "two_module", options_plugin("same"))
    assert "--one-dist-same-level" in site.lattice("plugins", "show", "one_module").stdout
    assert "--two-dist-same-level" in site.lattice("plugins", "show", "two_module").stdout


# ------------------------------------------------------------------------------------------------ commands of plugins

COMMAND = """
from lattice_core import hookimpl
from lattice_core.descriptors import CommandSpec, Option

def arguments(parser):
    parser.add_argument("who")
    parser.add_argument("--port", type=int, default=1)

def run(args, context):
    spec = next(part.spec for part in context.registry.all("command") if part.name == "greet")
    settings = context.settings_for(spec)
    print(args.who, args.port, settings.own["tone"], settings.core["port"])
    print(sorted(vars(args)), context.debug, "pypi" in context.sources(), "HOME" in context.environ)
    {body}

@hookimpl
def lattice_commands():
    yield CommandSpec(name="greet", summary="say hello", factory=run, arguments=arguments, options=(Option("tone", "how"),))
"""


def test_a_command_of_a_plugin_gets_its_arguments_and_a_context(site):
    site.install("cmd-dist", "cmd_module", COMMAND.format(body="return 7"))
    done = site.lattice("greet", "you", "--port", "5", "--greet-tone", "warm", LATTICE_PORT="99")
    assert done.stdout == "you 5 warm 99\n['port', 'who'] False True True\n"
    assert done.returncode == 7
    assert "greet" in site.lattice("--help").stdout
    assert "say hello" in site.lattice("greet", "--help").stdout


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (
            "raise ValueError('odd')",
            4,
            "command 'greet' (plugin cmd_module, cmd-dist 1.0): command greet failed: ValueError: odd (cmd_module.py",
        ),
        ("raise SystemExit(3)", 4, "failed: SystemExit: 3"),
        ("return None", 4, "the command returned None, not an exit status"),
        ("from lattice_core.errors import ModelError; raise ModelError('as it is')", 3, "lattice: error: as it is\n"),
    ],
)
def test_an_error_of_a_command_is_attributed(site, body, status, message):
    site.install("cmd-dist", "cmd_module", COMMAND.format(body=body))
    done = site.lattice("greet", "you")
    assert done.returncode == status
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert "Traceback" in site.lattice("greet", "you", "--debug").stderr


def test_an_interrupted_command_ends_with_130(site):
    site.install("cmd-dist", "cmd_module", COMMAND.format(body="raise KeyboardInterrupt"))
    done = site.lattice("greet", "you")
    assert (done.returncode, done.stderr) == (130, "")


def test_wrong_arguments_of_a_command_are_a_usage_error(site):
    site.install("cmd-dist", "cmd_module", COMMAND.format(body="return 0"))
    done = site.lattice("greet", "you", "--prot", "5")
    assert done.returncode == 2
    assert done.stderr == "lattice: error: unrecognized arguments: --prot 5; see `lattice greet --help`\n"


def test_an_unknown_command_lists_the_commands_the_nearest_and_what_failed(site):
    site.install("bad-dist", "bad_module", "raise RuntimeError('no')")
    done = site.lattice("sevre")
    assert done.returncode == 2
    assert "unknown command 'sevre' (did you mean serve?); commands: " in done.stderr
    assert "bad_module (RuntimeError: no" in done.stderr
