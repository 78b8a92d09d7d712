import pytest

from lattice_core.cli.command_line import looks_like_flag, parse_flags, scan_early, split_command
from lattice_core.descriptors import Option
from lattice_core.errors import UsageError
from lattice_core.options import CORE_OPTIONS, OptionTable, bind


@pytest.fixture
def table():
    made = OptionTable()
    made.add(bind(option) for option in CORE_OPTIONS)
    made.add([bind(Option("kv-bits", "bits", type="int"), "mlx", "backend 'mlx'")])
    return made


def given(arguments, table):
    return {dest: list(pairs) for dest, pairs in parse_flags(arguments, table).given.items()}


@pytest.mark.parametrize("value", ["-1", "-0.5", "-1e5", "-inf", "-", "- item", "-> x", "--", "x", "", "-é", "--help me"])
def test_numbers_dashes_and_prose_are_values(value, table):
    assert not looks_like_flag(value)
    assert given(["--prompt", value], table) == {":prompt": [("--prompt", value)]}


@pytest.mark.parametrize("follower", ["--port", "--port=1", "-x", "--no-such-flag", "-p"])
def test_a_flag_is_never_taken_as_the_value_of_another(follower, table):
    with pytest.raises(UsageError) as caught:
        parse_flags(["--host", follower], table)
    assert str(caught.value) == f"--host needs a value, but {follower} follows; write --host={follower} if that is the value"


def test_a_value_that_looks_like_a_flag_may_be_joined(table):
    assert given(["--prompt=--port"], table) == {":prompt": [("--prompt", "--port")]}


def test_a_missing_value_is_an_error(table):
    with pytest.raises(UsageError, match=r"^--port needs a value$"):
        parse_flags(["--port"], table)


def test_an_unknown_flag_names_the_nearest_and_what_failed(table):
    with pytest.raises(UsageError) as caught:
        parse_flags(["--temprature", "1"], table, note="; plugins that failed to load: x (y)")
    expected = (
        "unknown option --temprature (did you mean --temperature?); see `lattice --help`; plugins that failed to load: x (y)"
    )
    assert str(caught.value) == expected


def test_flags_are_not_abbreviated(table):
    with pytest.raises(UsageError, match="unknown option --temp "):
        parse_flags(["--temp", "1"], table)


def test_a_stray_argument_is_an_error(table):
    with pytest.raises(UsageError, match="unexpected argument 'stray'"):
        parse_flags(["--json", "stray"], table)


def test_switches_take_no_further_argument_and_can_be_turned_off(table):
    arguments = ["--json", "--no-json", "--json=false"]
    assert given(arguments, table) == {":json": [("--json", "true"), ("--no-json", "false"), ("--json", "false")]}
    with pytest.raises(UsageError, match="--no-json takes no value"):
        parse_flags(["--no-json=1"], table)


def test_the_names_of_the_seeds_work(table):
    names = (
        "model model-dir tokenizer-dir tokenizer prompt max-tokens seed temperature top-k top-p repetition-penalty host port"
    )
    arguments = [word for name in names.split() for word in (f"--{name}", "1")] + ["--json", "--serve"]
    flags = given(arguments, table)
    assert flags[":tokenizer-dir"] == [("--tokenizer-dir", "1"), ("--tokenizer", "1")]
    assert len(flags) == 14


def test_early_flags_are_taken_out_wherever_they_stand():
    early = scan_early(["-p", "no:mlx", "serve", "--no-plugins", "--port", "1", "-pno:repl", "--debug"])
    assert early.disabled == ("mlx", "repl")
    assert not early.third_party
    assert early.debug
    assert early.rest == ("serve", "--port", "1", "--debug")


def test_nothing_is_taken_after_two_dashes():
    assert scan_early(["greet", "--", "-p", "x"]).rest == ("greet", "--", "-p", "x")


@pytest.mark.parametrize("arguments", [["-p"], ["-p", "mlx"], ["-p", "no:"], ["-pno:"]])
def test_the_plugin_flag_takes_only_no_and_a_name(arguments):
    with pytest.raises(UsageError, match="is not no:NAME"):
        scan_early(arguments)


@pytest.mark.parametrize(
    ("arguments", "command", "rest"),
    [
        (["serve", "--port", "1"], "serve", ["--port", "1"]),
        (["--port", "1", "serve"], "serve", ["--port", "1"]),
        (["--model", "plugins", "--json"], None, ["--model", "plugins", "--json"]),
        (["--mlx-kv-bits", "4", "chat"], "chat", ["--mlx-kv-bits", "4"]),
        (["--json", "run"], "run", ["--json"]),
        (["--port=1", "run"], "run", ["--port=1"]),
        (["--unknown", "run"], None, ["--unknown", "run"]),
        (["--", "run"], None, ["--", "run"]),
        ([], None, []),
    ],
)
def test_the_command_is_the_first_argument_that_is_no_value(arguments, command, rest, table):
    assert split_command(arguments, table) == (command, rest)
