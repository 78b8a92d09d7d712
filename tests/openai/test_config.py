import pytest

from lattice_core.descriptors import Settings
from lattice_core.errors import UsageError
from lattice_core.options.core_options import CORE_OPTIONS
from lattice_openai.config import ServerConfig
from lattice_openai.plugin import OPTIONS, lattice_frontends

CORE = {option.name: option.default for option in CORE_OPTIONS} | {"port": 0}


def config(own=None, environ=None, **core):
    return ServerConfig.from_settings(Settings(own=own or {}, core={**CORE, **core}), environ or {})


def test_defaults_come_from_the_option_records():
    made = config()
    assert (made.max_body, made.keepalive, made.linger) == (1024 * 1024, 15.0, 1.0)
    assert (made.cors_origins, made.allowed_hosts, made.api_keys) == ((), (), ())


def test_keys_come_from_the_file_and_the_variable(tmp_path):
    path = tmp_path / "keys"
    path.write_text("# ours\nfirst\n\n second \n")
    made = config({"api-key-file": path}, {"LATTICE_OPENAI_API_KEY": " third "})
    assert set(made.api_keys) == {b"first", b"second", b"third"}


def test_keys_do_not_show_in_the_configurations_repr():
    assert "sesame" not in repr(config(environ={"LATTICE_OPENAI_API_KEY": "sesame"}))


def test_an_empty_variable_is_no_key():
    assert config(environ={"LATTICE_OPENAI_API_KEY": ""}).api_keys == ()


def test_no_option_takes_a_key_on_the_command_line():
    assert [option.name for option in OPTIONS if "key" in option.name] == ["api-key-file"]


@pytest.mark.parametrize("content", [None, "", "# nothing\n", b"\xff"])
def test_a_key_file_without_a_key_is_a_usage_error(tmp_path, content):
    path = tmp_path / "keys"
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UsageError, match="--openai-api-key-file"):
        config({"api-key-file": path})


@pytest.mark.parametrize("origin", ["example.com", "https://example.com/", "https://", "null", "https://a b"])
def test_what_is_no_origin_is_a_usage_error(origin):
    with pytest.raises(UsageError, match="--openai-cors-origin"):
        config({"cors-origin": (origin,)})


@pytest.mark.parametrize("origin", ["*", "https://app.example", "http://localhost:3000", "chrome-extension://abc"])
def test_origins_are_accepted(origin):
    assert config({"cors-origin": (origin,)}).cors_origins == (origin,)


def test_an_empty_host_is_a_usage_error():
    with pytest.raises(UsageError, match="--host"):
        config(host="")


def test_what_the_operator_set_is_told_from_defaults():
    settings = Settings(core=CORE, sources={"max-tokens": "flag", "top-k": "default", "seed": "environment"})
    assert ServerConfig.from_settings(settings, {}).defaults.explicit == {"max-tokens", "seed"}


def test_the_plugin_registers_the_frontend_openai():
    assert [spec.name for spec in lattice_frontends()] == ["openai"]


def test_the_directory_of_adapters_is_known_without_links(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert config({"lora-dir": tmp_path / "link"}).lora_dir == (tmp_path / "real").resolve()
    assert config().lora_dir is None


@pytest.mark.parametrize("name", ["absent", "file"])
def test_a_directory_of_adapters_that_is_none_is_a_usage_error(tmp_path, name):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=rf"--openai-lora-dir .*/{name} is no directory"):
        config({"lora-dir": tmp_path / name})
