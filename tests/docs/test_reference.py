"""The reference is complete and says what the code says. What it must hold is asked of the program and of its sources."""

import ast
import json
import re
import shutil
import subprocess
import sys
from types import FunctionType

import attrs
import pytest

import lattice_core
import lattice_hub.errors
from lattice_core import descriptors, errors, protocols, types
from lattice_core.errors import ExitCode
from lattice_core.options import CORE_OPTIONS, bind
from lattice_core.plugins import HOOKS, Found, PluginHost, Selection, Status
from lattice_core.wire import GENERATION_FIELDS
from lattice_openai import app
from lattice_openai.chat_request import _OWN as CHAT_FIELDS
from lattice_openai.errors import _FIELD_CODES as FIELD_CODES
from tests.docs.pages import DOCS, ROOT, reference

SOURCES = [
    path
    for folder in ("lattice_core", "plugins", "conformance")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if "__pycache__" not in path.parts
]
_VARIABLE = re.compile(r"(LATTICE|HF|HUGGINGFACE|XDG|OPENBLAS|GOTO|OMP)_[A-Z_]+")


def rows(page):
    """The first cells of all rows of all tables."""
    return [line.split(" | ")[0].removeprefix("| ") for line in page.text.splitlines() if line.startswith("| ")]


def named(page):
    """Everything that stands in the first cells as code."""
    return {name for cell in rows(page) for name in re.findall(r"`([^`]+)`", cell)}


def literals(tree):
    return (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str))


# ------------------------------------------------------------------------------------------------ generated parts


def generate(docs, *arguments):
    script = [sys.executable, docs / "generate.py", *arguments]
    return subprocess.run(script, check=False, capture_output=True, text=True, timeout=60)


def test_the_pages_are_those_that_the_code_makes():
    check = generate(DOCS, "--check")
    assert (check.returncode, check.stdout, check.stderr) == (0, "", "")


def test_a_stale_page_is_noticed_and_written_anew(tmp_path):
    docs = tmp_path / "docs"
    shutil.copytree(DOCS, docs)
    page = docs / "reference" / "cli.md"
    right = page.read_text()
    page.write_text(right.replace("`11435`", "`8080`"))
    check = generate(docs, "--check")
    assert (check.returncode, check.stdout) == (1, "stale, run `python docs/generate.py`: cli.md\n")
    assert page.read_text() != right
    assert generate(docs).returncode == 0
    assert page.read_text() == right


# ------------------------------------------------------------------------------------------------ command line


def test_every_option_of_the_core_is_in_the_reference_with_all_its_names():
    page = reference("cli")
    for bound in map(bind, CORE_OPTIONS):
        for name in (*bound.flags, *bound.variables):
            assert f"`{name}`" in page.text, f"{name} is missing in {page.name}"
        assert bound.option.help in page.text


def test_every_option_of_a_first_party_part_is_in_the_reference_with_all_its_names():
    listed = subprocess.run(
        [sys.executable, "-m", "lattice_core", "--no-plugins", "plugins", "--json"], check=True, capture_output=True, timeout=60
    )
    options = [
        option
        for plugin in json.loads(listed.stdout)
        if plugin["first_party"]
        for part in plugin["provides"]
        for option in part["options"]
    ]
    page = reference("cli")
    assert len(options) >= 15
    for option in options:
        for name in (*option["flags"], *option["variables"], f"[{option['config']['table']}] {option['config']['key']}"):
            assert f"`{name}`" in page.text, f"{name} is missing in {page.name}"
        assert option["help"] in page.text


def test_every_command_is_in_the_reference():
    text = subprocess.run(
        [sys.executable, "-m", "lattice_core", "--no-plugins", "--help"], check=True, capture_output=True, text=True, timeout=60
    ).stdout
    commands = re.findall(r"^  (\w+) ", text.partition("commands:\n")[2].partition("\n\n")[0], re.MULTILINE)
    assert {"serve", "pull"} <= set(commands)
    assert {f"lattice {command}" for command in commands} <= named(reference("cli"))


def test_every_exit_status_is_in_the_reference():
    page = reference("cli")
    for status in ExitCode:
        assert f"| {status:d} | `{status.name}` |" in page.text


def test_every_environment_variable_that_the_code_names_is_in_the_reference():
    found = {
        (word, path.name)
        for path in SOURCES
        for word in literals(ast.parse(path.read_text(encoding="utf-8")))
        if _VARIABLE.fullmatch(word)
    }
    text = reference("cli").text
    # Not variables: what a plugin states in its module.
    missing = sorted(f"{word} ({file})" for word, file in found if word != "LATTICE_API_VERSION" and f"`{word}" not in text)
    assert len(found) > 10
    assert missing == []


# ------------------------------------------------------------------------------------------------ plugins


def test_every_hook_is_in_the_reference_with_its_record():
    page = reference("plugins")
    for hook, (kind, record) in HOOKS.items():
        assert f"### `{hook}`" in page.text
        assert f"| `{hook}` | {kind} | [`{record.__name__}`]" in page.text


@pytest.mark.parametrize("hook", HOOKS)
def test_the_example_of_every_hook_is_a_plugin_that_loads(hook, tmp_path, monkeypatch):
    page = reference("plugins")
    section = page.text.partition(f"### `{hook}`\n")[2]
    module = f"example_of_{hook}"
    (tmp_path / f"{module}.py").write_text(section.partition("```python\n")[2].partition("```")[0])
    monkeypatch.syspath_prepend(str(tmp_path))
    host = PluginHost.load(Selection(), [Found(module, module, "example", "1.0")])
    [record] = host.records
    assert (record.status, record.cause) == (Status.LOADED, "")
    assert [part.hook for part in record.provides] == [hook]


def test_every_field_of_every_record_and_all_data_is_in_the_reference():
    text = reference("plugins").text
    for module in (descriptors, types):
        for name, found in vars(module).items():
            if attrs.has(found) and found.__module__ == module.__name__:
                section = text.partition(f"### `{name}`\n")[2].partition("\n###")[0]
                for field in attrs.fields(found):
                    inherited = "Has the fields of [`Spec`]" in section and field.name in attrs.fields_dict(descriptors.Spec)
                    assert f"| `{field.name}` |" in section or inherited, f"{name}.{field.name} is missing"


@pytest.mark.parametrize("name", protocols.__all__)
def test_every_member_of_every_protocol_is_in_the_reference(name):
    section = reference("plugins").text.partition(f"### `{name}`\n")[2].partition("\n###")[0]
    members = [member for member, value in vars(getattr(protocols, name)).items() if isinstance(value, FunctionType | property)]
    public = [member for member in members if not member.startswith("_") or member in ("__iter__", "__aiter__")]
    assert public
    for member in public:
        assert re.search(rf"\| `{member}[(:]", section), f"{name}.{member} is missing"


def test_the_reference_states_the_api_version():
    assert f"`lattice_core.API_VERSION` is {lattice_core.API_VERSION}." in reference("plugins").text


def test_every_event_that_observers_get_is_in_the_reference():
    calls = [
        node
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("telemetry.record")
    ]
    page = reference("plugins")
    assert calls
    for call in calls:
        line = next(line for line in page.text.splitlines() if line.startswith(f"| `{ast.literal_eval(call.args[0])}` |"))
        assert all(f"`{keyword.arg}`" in line for keyword in call.keywords)


# ------------------------------------------------------------------------------------------------ errors and requests


def error_classes(base=errors.LatticeError):
    yield base
    for found in base.__subclasses__():
        yield from error_classes(found)


def test_every_code_of_the_error_tree_is_in_the_reference_with_its_statuses():
    text = reference("errors").text
    first_party = [found for found in error_classes() if found.__module__.startswith("lattice_") and "code" in vars(found)]
    assert lattice_hub.errors.PullError in first_party
    for found in first_party:
        assert f"| `{found.code}` | {found.http_status} | {found.exit_code:d} | `{found.__name__}` |" in text


def test_every_code_that_a_frontend_makes_itself_is_in_the_reference():
    found = set(FIELD_CODES.values())
    for path in SOURCES:
        if "lattice_openai" in path.parts or "lattice_stdio" in path.parts:
            found |= set(codes_in(ast.parse(path.read_text(encoding="utf-8"))))
    assert found >= {"invalid_top_k", "invalid_messages", "host_not_allowed", "cancelled", "not_found", "internal_error"}
    assert found - named(reference("errors")) == set()


def codes_in(tree):
    """Codes of errors: arguments of ``ApiError`` and of the makers of errors, defaults of parameters, tables of answers."""
    for node in ast.walk(tree):
        if isinstance(node, ast.arguments):
            positional = [*node.posonlyargs, *node.args]
            pairs = [
                *zip(positional[::-1], node.defaults[::-1], strict=False),
                *zip(node.kwonlyargs, node.kw_defaults, strict=True),
            ]
            yield from text_of(value for argument, value in pairs if argument.arg == "code")
        elif isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            yield from text_of(keyword.value for keyword in node.keywords if keyword.arg == "code")
            position = {"ApiError": 1, "error_event": 2}.get(name)
            yield from text_of(node.args[position : position + 1] if position is not None else ())
        elif isinstance(node, ast.Dict):
            answers = (value for key, value in zip(node.keys, node.values, strict=True) if is_status(key))
            yield from text_of(value.elts[0] for value in answers if isinstance(value, ast.Tuple))


def is_status(node):
    return isinstance(node, ast.Constant) and isinstance(node.value, int)


def text_of(nodes):
    return (node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))


def test_every_field_of_a_chat_request_is_in_the_reference():
    assert named(reference("http")) >= CHAT_FIELDS


def test_every_key_of_a_request_line_is_in_the_reference():
    source = ROOT / "plugins" / "lattice_stdio" / "request_line.py"
    keys = (
        GENERATION_FIELDS
        | {
            node.args[1].value
            for node in ast.walk(ast.parse(source.read_text(encoding="utf-8")))
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("get_text", "get_object", "get_int", "get_number")
        }
        | {
            node.args[0].value
            for node in ast.walk(ast.parse(source.read_text(encoding="utf-8")))
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "body.get"
        }
    )
    assert keys >= {"prompt", "messages", "stop", "temperature"}
    assert keys <= named(reference("stdio"))


def test_every_route_is_in_the_reference():
    for route in (app.CHAT_ROUTE, app.MODELS_ROUTE, app.HEALTH_ROUTE, app.LORA_ROUTE, app.LOAD_ROUTE, app.UNLOAD_ROUTE):
        assert any(name.endswith(route) for name in named(reference("http")))
