from pathlib import Path

import pytest

from lattice_core.adapter_names import AdapterOption, is_adapter_name, names_adapter, read_adapter_options
from lattice_core.errors import ExitCode, UsageError

TAKEN = ("smollm2-135m", "lattice")


def read(*texts):
    return read_adapter_options(texts, TAKEN)


@pytest.mark.parametrize(
    ("text", "option"),
    [
        ("fr=/loras/fr", AdapterOption("fr", Path("/loras/fr"))),
        ("Fr.v2_a-b=x", AdapterOption("Fr.v2_a-b", Path("x"))),
        ("a=b=c", AdapterOption("a", Path("b=c"))),
        ("/loras/fr.safetensors", AdapterOption("fr", Path("/loras/fr.safetensors"), default=True)),
        ("loras/fr/", AdapterOption("fr", Path("loras/fr"), default=True)),
        ("./a=b", AdapterOption("a-b", Path("a=b"), default=True)),
        (
            "/tmp/my adapter (2).safetensors",
            AdapterOption("my-adapter-2", Path("/tmp/my adapter (2).safetensors"), default=True),
        ),
        ("/tmp/.hidden", AdapterOption("hidden", Path("/tmp/.hidden"), default=True)),
        ("/tmp/日本", AdapterOption("adapter", Path("/tmp/日本"), default=True)),
        ("..", AdapterOption("adapter", Path(".."), default=True)),
        ("/loras/smollm2-135m", AdapterOption("smollm2-135m-lora", Path("/loras/smollm2-135m"), default=True)),
    ],
)
def test_a_value_is_a_path_or_a_name_and_a_path(text, option):
    assert read(text) == (option,)
    assert names_adapter(text) is not option.default
    assert is_adapter_name(option.name)


def test_a_home_directory_is_put_in(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    assert [option.path for option in read("fr=~/fr", "~/de")] == [Path("/home/me/fr"), Path("/home/me/de")]


def test_one_without_a_name_steps_aside_for_one_that_has_its_name():
    assert [(option.name, option.default) for option in read("/x/fr", "fr=/y")] == [("fr", False), ("fr-lora", True)]


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["my lora=/x"], r"--lora my lora=/x: 'my lora' is no name \(letters.*\); write \./my lora=/x if it is a path$"),
        (["=x"], "'' is no name"),
        (["-a=x"], "'-a' is no name"),
        (["fr="], "--lora fr=: no path follows the name"),
        (["lattice=x"], "'lattice' is the name of the model itself"),
        (["smollm2-135m=x"], "'smollm2-135m' is the name of the model itself"),
        (["fr=x", "fr=y"], "--lora fr=y: another --lora has the name 'fr'"),
        (["a/x", "b/y"], "--lora a/x and --lora b/y both have no name"),
    ],
)
def test_a_name_that_is_wrong_or_taken_is_a_usage_error(texts, message):
    with pytest.raises(UsageError, match=message) as caught:
        read(*texts)
    assert (caught.value.exit_code, caught.value.param) == (ExitCode.USAGE, "lora")
