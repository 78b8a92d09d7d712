import pytest

from lattice_core.descriptors import Option
from lattice_core.errors import UsageError
from lattice_core.options import ConfigFile, OptionTable, bind, find_config, read_config, resolve_options

PORT = Option("port", "x", type="int", default=1, env_aliases=("LATTICE_SERVE_PORT",))
BITS = Option("kv-bits", "x", type="int", default=16)
TAGS = Option("tag", "x", repeatable=True)
OPTIONS = (bind(PORT), bind(BITS, "mlx", "backend 'mlx'"), bind(TAGS, "mlx", "backend 'mlx'"))


def resolved(flags=None, environ=None, config=None):
    return resolve_options(OPTIONS, flags or {}, environ or {}, config or ConfigFile())


@pytest.fixture
def config(tmp_path):
    def write(text):
        path = tmp_path / "lattice.toml"
        path.write_text(text)
        return read_config(path)

    return write


def test_flag_wins_over_environment_over_file_over_default(config):
    file = config("port = 4\n[mlx]\nkv_bits = 8\n")
    environ = {"LATTICE_PORT": "3", "LATTICE_MLX_KV_BITS": "6"}
    flags = {":port": [("--port", "2")], "mlx:kv-bits": [("--mlx-kv-bits", "5"), ("--mlx-kv-bits", "4")]}
    cases = [
        (resolved(flags, environ, file), 2, 4, "flag"),
        (resolved({}, environ, file), 3, 6, "environment"),
        (resolved({}, {}, file), 4, 8, "config"),
        (resolved(), 1, 16, "default"),
    ]
    for values, port, bits, source in cases:
        assert values.core["port"] == port
        assert values.own("mlx")["kv-bits"] == bits
        assert values.core_sources["port"] == source


def test_the_first_variable_wins_over_its_aliases():
    environ = {"LATTICE_SERVE_PORT": "5", "LATTICE_PORT": "6"}
    assert resolved(environ=environ).core["port"] == 6
    assert resolved(environ={"LATTICE_SERVE_PORT": "5"}).core["port"] == 5


def test_an_empty_variable_is_not_set():
    assert resolved(environ={"LATTICE_PORT": "", "LATTICE_SERVE_PORT": "5"}).core["port"] == 5
    assert resolved(environ={"LATTICE_PORT": ""}).core_sources["port"] == "default"


def test_a_repeatable_option_collects_flags_and_is_empty_by_default():
    assert resolved({"mlx:tag": [("--mlx-tag", "a,b"), ("--mlx-tag", "c")]}).own("mlx")["tag"] == ("a,b", "c")
    assert resolved(environ={"LATTICE_MLX_TAG": "a,b"}).own("mlx")["tag"] == ("a", "b")
    assert resolved().own("mlx")["tag"] == ()


def test_errors_name_the_flag_as_written_the_variable_or_the_key(config):
    with pytest.raises(UsageError, match=r"^--port: 'x' is not an integer$"):
        resolved({":port": [("--port", "x")]})
    with pytest.raises(UsageError, match=r"^LATTICE_SERVE_PORT: 'x' is not an integer$"):
        resolved(environ={"LATTICE_SERVE_PORT": "x"})
    with pytest.raises(UsageError, match=r"lattice.toml: \[mlx\] kv-bits: 'x' is not an integer$"):
        resolved(config=config("[mlx]\nkv-bits = 'x'\n"))


# ------------------------------------------------------------------------------------------------ the file


@pytest.fixture
def table():
    made = OptionTable()
    made.add(OPTIONS)
    return made


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("prot = 1\n", r"lattice.toml: prot is no option \(did you mean port\?\)"),
        ("[mlx]\nkv_bit = 8\n", r"lattice.toml: \[mlx\] kv-bit is no option \(did you mean kv-bits\?\)"),
        ("[mxl]\nkv_bits = 8\n", r"lattice.toml: unknown table \[mxl\] \(did you mean mlx\?\)"),
        ("[greedy]\nx = 8\n", r"lattice.toml: \[greedy\] x is no option"),
    ],
)
def test_an_unknown_key_or_table_is_an_error_with_the_nearest(config, table, text, message):
    with pytest.raises(UsageError, match=message):
        config(text).check_keys(table, ["mlx", "greedy"], complete=True)


def test_tables_of_plugins_that_are_left_out_are_passed_over(config, table):
    assert config("port = 1\n[absent]\nx = 1\n").check_keys(table, ["mlx"], complete=False) == ["absent"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("port = \n", "is not TOML"),
        ("kv-bits = 1\nkv_bits = 1\n", "kv-bits is set twice, once with - and once with _"),
    ],
)
def test_a_file_that_cannot_be_understood_is_an_error(config, text, message):
    with pytest.raises(UsageError, match=message):
        config(text)


def test_a_file_that_is_named_must_be_there(tmp_path):
    with pytest.raises(UsageError, match=r"configuration file .* cannot be read: No such file"):
        read_config(tmp_path / "absent.toml")
    with pytest.raises(UsageError, match="cannot be read: Is a directory"):
        read_config(tmp_path)


def test_the_file_is_the_named_one_then_the_one_here_then_the_users(tmp_path):
    here, home = tmp_path / "here", tmp_path / "home"
    users = home / ".config" / "lattice" / "lattice.toml"
    users.parent.mkdir(parents=True)
    here.mkdir()
    environ = {"HOME": str(home)}
    assert find_config(None, environ, here) is None
    users.write_text("")
    assert find_config(None, environ, here) == users
    (here / "lattice.toml").write_text("")
    assert find_config(None, environ, here) == here / "lattice.toml"
    assert find_config(None, {**environ, "LATTICE_CONFIG": "/b.toml"}, here).as_posix() == "/b.toml"
    assert find_config("/a.toml", {**environ, "LATTICE_CONFIG": "/b.toml"}, here).as_posix() == "/a.toml"


def test_without_a_file_nothing_is_set():
    assert read_config(None).get("", "port") is None
