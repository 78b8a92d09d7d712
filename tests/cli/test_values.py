from pathlib import Path

import pytest

from lattice_core.descriptors import Option
from lattice_core.errors import UsageError
from lattice_core.options import CORE_OPTIONS, convert

CORE = {option.name: option for option in CORE_OPTIONS}


def option(kind, **more):
    return Option("x", "help", type=kind, **more)


@pytest.mark.parametrize(
    ("kind", "raw", "value"),
    [
        ("str", "", ""),
        ("str", "a b", "a b"),
        ("int", "42", 42),
        ("int", "-1", -1),
        ("int", 7, 7),
        ("float", "-0.5", -0.5),
        ("float", "1e3", 1000.0),
        ("float", 2, 2.0),
        ("bool", "yes", True),
        ("bool", "OFF", False),
        ("bool", True, True),
        ("bytes", "0", 0),
        ("bytes", "512", 512),
        ("bytes", "1k", 1024),
        ("bytes", "512M", 512 << 20),
        ("bytes", "8G", 8 << 30),
        ("bytes", "1.5GiB", 3 << 29),
        ("bytes", "2 TB", 2 << 40),
        ("bytes", 4096, 4096),
        ("path", "a/b", Path("a/b")),
    ],
)
def test_text_and_toml_values_become_the_options_type(kind, raw, value):
    assert convert(option(kind), raw, "--x") == value
    assert type(convert(option(kind), raw, "--x")) is (type(Path()) if kind == "path" else type(value))


@pytest.mark.parametrize(
    ("kind", "raw", "message"),
    [
        ("str", 5, "--x: 5 is not text"),
        ("int", "abc", "--x: 'abc' is not an integer"),
        ("int", "1.5", "--x: '1.5' is not an integer"),
        ("int", "1_000", "--x: '1_000' is not an integer"),
        ("int", "", "--x: '' is not an integer"),
        ("int", "9" * 5000, "is not an integer"),
        ("int", True, "--x: True is not an integer"),
        ("int", 1.0, "--x: 1.0 is not an integer"),
        ("float", "nan", "--x: 'nan' is not a finite number"),
        ("float", "-inf", "--x: '-inf' is not a finite number"),
        ("float", "half", "--x: 'half' is not a number"),
        ("float", True, "--x: True is not a number"),
        ("bool", "maybe", "--x: 'maybe' is not true or false"),
        ("bool", 1, "--x: 1 is not true or false"),
        ("bytes", "lots", "--x: 'lots' is not a size in bytes, such as 512M or 8G"),
        ("bytes", "-1", "--x: '-1' is not a size"),
        ("bytes", "8X", "--x: '8X' is not a size"),
        ("path", "", "--x: '' is not a path"),
        ("path", "a\0b", "is not a path"),
        ("path", 5, "--x: 5 is not a path"),
    ],
)
def test_what_does_not_parse_is_an_error_that_names_where_and_what(kind, raw, message):
    with pytest.raises(UsageError) as caught:
        convert(option(kind), raw, "--x")
    assert message in str(caught.value)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("name", "raw", "message"),
    [
        ("port", "65536", "65536 is above the maximum 65535"),
        ("port", "-1", "-1 is below the minimum 0"),
        ("max-tokens", "0", "0 is below the minimum 1"),
        ("temperature", "-0.1", "-0.1 is below the minimum 0"),
        ("temperature", "101", "101 is above the maximum 100"),
        ("top-p", "0", "0 is below the minimum 0.000001"),
        ("top-p", "1.01", "1.01 is above the maximum 1"),
        ("top-k", "-1", "-1 is below the minimum 0"),
        ("repetition-penalty", "0", "0 is below the minimum 0.000001"),
        ("seed", "-1", "-1 is below the minimum 0"),
        ("seed", str(2**64), "is above the maximum 18446744073709551615"),
        ("context", "0", "0 is below the minimum 1"),
        ("max-batch", "0", "0 is below the minimum 1"),
        ("max-queue", "-1", "-1 is below the minimum 0"),
        ("memory", "0", "0 is below the minimum 1"),
        ("drain-seconds", "-1", "-1 is below the minimum 0"),
    ],
)
def test_a_value_out_of_range_is_an_error_that_names_the_limit(name, raw, message):
    with pytest.raises(UsageError) as caught:
        convert(CORE[name], raw, f"--{name}")
    assert str(caught.value).startswith(f"--{name}: ")
    assert str(caught.value).endswith(message)


@pytest.mark.parametrize(
    ("name", "raw", "value"),
    [
        ("port", "0", 0),
        ("port", "65535", 65535),
        ("top-p", "1", 1.0),
        ("temperature", "0", 0.0),
        ("seed", str(2**64 - 1), 2**64 - 1),
    ],
)
def test_limits_are_inclusive(name, raw, value):
    assert convert(CORE[name], raw, "x") == value


def test_a_value_that_is_no_choice_names_the_choices_and_the_nearest():
    with pytest.raises(UsageError, match=r"^--x: 'gup' is not one of cpu, gpu \(did you mean gpu\?\)$"):
        convert(option("str", choices=("cpu", "gpu")), "gup", "--x")


@pytest.mark.parametrize("raw", ["1, 2,,3", ["1", "2", "3"], [1, 2, 3]])
def test_a_repeatable_option_takes_lists_and_comma_separated_text(raw):
    assert convert(option("int", repeatable=True), raw, "LATTICE_X") == (1, 2, 3)


def test_a_home_directory_is_expanded(monkeypatch):
    monkeypatch.setenv("HOME", "/home/someone")
    assert convert(option("path"), "~/models", "--x") == Path("/home/someone/models")
