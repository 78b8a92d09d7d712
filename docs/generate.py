"""Writes the parts of the reference pages that come from the code: options, commands, hooks, records, protocols, errors.

``python docs/generate.py`` rewrites, in ``reference/*.md`` beside this file, what stands between ``<!-- generated: NAME -->``
and ``<!-- end: NAME -->``. With ``--check`` it changes nothing and ends with status 1 where a page is stale. The words are
those of the code; what is said about a part belongs there, not here.
"""  # noqa: INP001  # a script, not a package

from __future__ import annotations

import argparse
import ast
import inspect
import json
import re
import sys
import textwrap
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import lattice_hub.errors
from lattice_core import descriptors, errors, hookspecs, protocols, types
from lattice_core.cli.command_line import Early
from lattice_core.cli.help_text import BUILT_IN
from lattice_core.cli.parsers import Parser
from lattice_core.cli.session import Session
from lattice_core.descriptors import CommandSpec, resolve
from lattice_core.options import CORE, CORE_GROUPS
from lattice_core.plugins import HOOKS, PluginHost, Selection
from lattice_core.plugins.reserved import RESERVED
from lattice_core.wire.unsupported_fields import GOVERNED, INERT, INSTEAD, NEUTRAL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from types import ModuleType

    from lattice_core.options import BoundOption

PAGES = Path(__file__).parent / "reference"
_BLOCK = re.compile(r"(<!-- generated: (?P<name>[\w-]+) -->\n).*?(<!-- end: (?P=name) -->)", re.DOTALL)
_UNITS = ((1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K"))

# ------------------------------------------------------------------------------------------------ Markdown


def prose(text: str) -> str:
    """A docstring's or a help's words: its literals in single backticks, its paragraphs kept, its lines joined."""
    paragraphs = inspect.cleandoc(text).replace("``", "`").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def code(text: object) -> str:
    """Inline code."""
    return f"`{text}`"


def table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table; an empty cell shows a dash."""
    lines = [list(heads)]
    lines += [
        ["---"] * len(lines[0]),
        *([cell.replace("|", r"\|").replace("\n\n", " ") or "-" for cell in row] for row in rows),
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


# ------------------------------------------------------------------------------------------------ command line


def session() -> Session:
    """What the command line knows without plugins of others, flags, variables and files."""
    return Session(PluginHost.load(Selection(third_party=False)), {}, Early())


def default_of(bound: BoundOption) -> str:
    """An option's default as one would write it."""
    option = bound.option
    if option.default is None or option.default == ():
        return ""
    if option.type == "bool":
        return "on" if option.default else "off"
    if option.type == "bytes":
        return next((code(f"{option.default // size}{unit}") for size, unit in _UNITS if option.default % size == 0), "")
    return code(option.default)


def values_of(bound: BoundOption) -> str:
    """What an option takes."""
    option = bound.option
    if option.choices:
        return ", ".join(code(choice) for choice in option.choices)
    kind = {"str": "text", "int": "integer", "float": "number", "bool": "switch", "path": "path", "bytes": "size"}[option.type]
    limits = []
    if option.minimum is not None:
        limits.append(f"from {option.minimum:g}" if option.minimum in (0, 1) or option.minimum > 1 else "above 0")
    if option.maximum is not None:
        limits.append(f"to {option.maximum}")
    return " ".join([kind, *limits]) + (", repeatable" if option.repeatable else "")


def option_table(bounds: Iterable[BoundOption]) -> str:
    """One row for each option, with all its names."""
    rows = []
    for bound in bounds:
        flags = ", ".join(map(code, bound.flags))
        key = f"[{bound.owner}] {bound.key}" if bound.owner != CORE else bound.key
        in_file = "" if bound.dest == f"{CORE}:config" else code(key)
        variables = ", ".join(map(code, bound.variables))
        rows.append((flags, variables, in_file, values_of(bound), default_of(bound), prose(bound.option.help)))
    return table(("Flag", "Variable", "In `lattice.toml`", "Takes", "Default", "Meaning"), rows)


def core_options() -> str:
    """The core's options, by the groups of the help."""
    found = {bound.option.name: bound for bound in session().table.of(CORE)}
    sections = (
        f"### {title.capitalize()}\n\n{option_table(found[option.name] for option in group)}" for title, group in CORE_GROUPS
    )
    return "\n\n".join(sections)


def part_options() -> str:
    """The options of the first-party parts."""
    options = session().table
    sections = []
    for owner in sorted(options.owners()):
        bounds = options.of(owner)
        title = bounds[0].label.partition(" (")[0].replace("'", "`").capitalize()
        sections.append(f"### {title}\n\n{option_table(bounds)}")
    return "\n\n".join(sections)


def commands() -> str:
    """All commands, and the arguments of those that plugins bring."""
    parts = session().registry.all("command")
    rows = [(code(f"lattice {name}"), summary) for name, summary in BUILT_IN]
    rows += [(code(f"lattice {part.name}"), prose(part.spec.summary)) for part in parts]
    sections = [table(("Command", "Meaning"), rows)]
    for part in parts:
        if isinstance(part.spec, CommandSpec):
            parser = Parser(f"lattice {part.name}")
            resolve(part.spec.arguments)(parser)
            arguments = [
                (", ".join(map(code, action.option_strings)) or code(action.metavar or action.dest), prose(action.help or ""))
                for action in parser._actions  # noqa: SLF001  # argparse has no other way to list them
                if action.dest != "help"
            ]
            sections.append(f"### `lattice {part.name}`\n\n{table(('Argument', 'Meaning'), arguments)}")
    return "\n\n".join(sections)


# ------------------------------------------------------------------------------------------------ hooks and records


def classes_of(module: ModuleType) -> Iterator[ast.ClassDef]:
    """The public classes of a module, or of all modules of a package, in their order."""
    files = sorted(Path(path) for folder in getattr(module, "__path__", ()) for path in Path(folder).glob("*.py"))
    for file in files or [Path(inspect.getfile(module))]:
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                yield node


def class_sections(module: ModuleType) -> str:
    """Each public class with what its source says of fields, members and values."""
    return "\n\n".join(class_section(node) for node in classes_of(module))


def class_section(node: ast.ClassDef) -> str:
    """A class as a section."""
    bases = [ast.unparse(base) for base in node.bases if ast.unparse(base) not in ("Protocol", "Enum", "StrEnum")]
    parts = [f"### `{node.name}`", prose(ast.get_docstring(node) or "")]
    parts += [f"Has the fields of [{code(base)}](#{base.lower()}) too." for base in bases]
    fields = [item for item in node.body if isinstance(item, ast.AnnAssign)]
    if fields:
        rows = (
            (code(ast.unparse(item.target)), code(ast.unparse(item.annotation)), field_default(item.value)) for item in fields
        )
        parts.append(table(("Field", "Type", "Default"), rows))
    members = [item for item in node.body if isinstance(item, ast.FunctionDef) and ast.get_docstring(item)]
    if members:
        parts.append(
            table(("Member", "Meaning"), ((code(signature(item)), prose(ast.get_docstring(item) or "")) for item in members))
        )
    values = [ast.literal_eval(item.value) for item in node.body if isinstance(item, ast.Assign)]
    if values:
        parts.append(f"Values: {', '.join(code(value) for value in values)}.")
    return "\n\n".join(parts)


def field_default(value: ast.expr | None) -> str:
    """The default of an attrs field; a dash where it must be given."""
    if isinstance(value, ast.Call) and ast.unparse(value.func) == "field":
        given = {keyword.arg: keyword.value for keyword in value.keywords}
        if "factory" in given:
            return code(f"{ast.unparse(given['factory'])}()")
        value = given.get("default")
    return code(ast.unparse(value)) if value is not None else ""


def signature(function: ast.FunctionDef) -> str:
    """``name(arguments) -> type``, or ``name: type`` for a property; without ``self``."""
    returns = ast.unparse(function.returns) if function.returns else "None"
    if any(ast.unparse(decorator) == "property" for decorator in function.decorator_list):
        return f"{function.name}: {returns}"
    arguments = re.sub(r"^self(, )?", "", ast.unparse(function.args))
    return f"{function.name}({arguments}) -> {returns}"


def hooks() -> str:
    """The hooks in one table, then each with its example."""
    rows, sections = [], []
    for name, (kind, record) in HOOKS.items():
        words, _, example = inspect.cleandoc(getattr(hookspecs, name).__doc__ or "").partition("Example::")
        factory = re.search(r"``(factory\([^`]*) -> (\w+)", record.__doc__ or "")
        call, product = (factory[1], factory[2]) if factory else ("", "")
        rows.append((code(name), kind, f"[`{record.__name__}`](#{record.__name__.lower()})", code(call), product_link(product)))
        sections.append(f"### `{name}`\n\n{prose(words)}\n\n```python\n{textwrap.dedent(example).strip()}\n```")
    heads = ("Hook", "Kind of part", "Record", "Called to make it", "Makes")
    return "\n\n".join([table(heads, rows), *sections])


def product_link(name: str) -> str:
    """What a factory makes, linked where it is a protocol."""
    return f"[`{name}`](#{name.lower()})" if hasattr(protocols, name) else code(name)


def reserved() -> str:
    """The names that belong to the first-party distribution."""
    rows = ((kind, ", ".join(code(name) for name in sorted(names))) for kind, names in RESERVED.items())
    return table(("Kind of part", "Reserved names"), rows)


# ------------------------------------------------------------------------------------------------ errors and request fields


def error_table() -> str:
    """Every class of the error tree that has a code of its own."""
    rows = []
    for module in (errors, lattice_hub.errors):
        for node in classes_of(module):
            found = getattr(module, node.name)
            if "code" in vars(found):
                status = f"{found.exit_code:d}"
                rows.append((code(found.code), str(found.http_status), status, code(node.name), prose(found.__doc__ or "")))
    return table(("Code", "HTTP status", "Exit status", "Class", "Meaning"), rows)


def request_fields(honoured: frozenset[str] = frozenset()) -> str:
    """The fields of requests that are refused but for those that a frontend has ``honoured``, and those that change nothing."""
    by_values: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for name, values in NEUTRAL.items():
        if name not in honoured:
            by_values[tuple(map(json.dumps, values))].append(code(name) + (f" ({INSTEAD[name]})" if name in INSTEAD else ""))
    paragraphs = [f"Refused at any value but null: {', '.join(by_values.pop(()))}."]
    rows = ((" or ".join(map(code, values)), ", ".join(names)) for values, names in sorted(by_values.items()))
    paragraphs.append(table(("Accepted at", "Fields, refused at any other value"), rows))
    governed = ", ".join(f"{code(name)} (with {' or '.join(map(code, by))})" for name, by in GOVERNED.items())
    paragraphs.append(f"Accepted only beside another field, which is then at its neutral value: {governed}.")
    paragraphs.append(f"Accepted, and without any effect: {', '.join(map(code, sorted(INERT)))}.")
    return "\n\n".join(paragraphs)


BLOCKS: Mapping[str, Callable[[], str]] = {
    "commands": commands,
    "core-options": core_options,
    "part-options": part_options,
    "hooks": hooks,
    "descriptors": lambda: class_sections(descriptors),
    "protocols": lambda: class_sections(protocols),
    "types": lambda: class_sections(types),
    "reserved": reserved,
    "errors": error_table,
    "http-fields": request_fields,
    "stdio-fields": lambda: request_fields(frozenset({"prompt"})),
}


def filled(text: str) -> str:
    """A page with its generated parts as they should be. Raises ``KeyError`` for a block that nobody makes."""
    return _BLOCK.sub(lambda match: f"{match[1]}\n{BLOCKS[match['name']]()}\n\n{match[3]}", text)


def main() -> int:
    """Write the pages, or check them; returns the exit status."""
    parser = argparse.ArgumentParser(description="Writes the generated parts of docs/reference.")
    parser.add_argument("--check", action="store_true", help="change nothing; exit status 1 where a page is stale")
    check = parser.parse_args().check
    stale = []
    for page in sorted(PAGES.glob("*.md")):
        text = page.read_text(encoding="utf-8")
        wanted = filled(text)
        if wanted != text:
            stale.append(page.name)
            if not check:
                page.write_text(wanted, encoding="utf-8")
    if stale:
        told = "stale, run `python docs/generate.py`" if check else "written"
        sys.stdout.write(f"{told}: {', '.join(stale)}\n")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
