"""``lattice --help``: commands, the core's options by group, and the options of the parts that are selected."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lattice_core.cli.parsers import Parser, add_option
from lattice_core.options import CORE, CORE_GROUPS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lattice_core.cli.session import Session

BUILT_IN = (
    ("serve", "HTTP server with the OpenAI API (--frontend openai)"),
    ("chat", "talk to the model in the terminal (--frontend repl)"),
    ("run", "one prompt, or JSON lines on stdin and stdout (--frontend stdio)"),
    ("plugins", "list, show and check plugins"),
)

_PARTS = {"frontend": "frontend", "backend": "backend", "loader": "loader", "sampler": "sampler", "chat-format": "chat-format"}


def help_text(session: Session, command: str | None, selected: Sequence[str]) -> str:
    """The help of ``lattice`` or of one of its presets; ``selected`` are owners whose options are shown too."""
    prog = "lattice" if command is None else f"lattice {command}"
    parser = Parser(prog)
    parser.usage = "lattice [COMMAND] [OPTIONS]" if command is None else f"{prog} [OPTIONS]"
    description = ["A local LLM engine whose every part is a plugin."] if command is None else [dict(BUILT_IN)[command]]
    if command is None:
        description += ["", "commands:", *_commands(session)]
    parser.description = "\n".join(description)
    for title, options in CORE_GROUPS:
        group = parser.add_argument_group(title)
        names = {option.name for option in options}
        for bound in session.table.of(CORE):
            if bound.option.name in names:
                add_option(group, bound)
    for owner in selected:
        bounds = session.table.of(owner)
        if bounds:
            group = parser.add_argument_group(f"options of {bounds[0].label.partition(' (')[0]}")
            for bound in bounds:
                add_option(group, bound)
    group = parser.add_argument_group("plugins")
    group.add_argument("-p", metavar="no:NAME", help="leave a plugin out, by its name or its distribution's")
    group.add_argument("--no-plugins", action="store_true", help="leave out all plugins but Lattice's own")
    group.add_argument("--version", action="store_true", help="print the version")
    parser.epilog = "\n".join(_epilog(session, selected))
    return parser.format_help()


def _commands(session: Session) -> Iterable[str]:
    rows = [*BUILT_IN]
    rows += [(session.registry.public_name(part), part.spec.summary) for part in session.registry.all("command")]
    return [f"  {name:<10} {summary}" for name, summary in rows]


def _epilog(session: Session, selected: Sequence[str]) -> Iterable[str]:
    registry = session.registry
    yield "parts that are installed:"
    for kind in _PARTS:
        yield f"  {kind:<12} {', '.join(registry.names(kind)) or 'none'}"
    yield ""
    yield "--some-option is LATTICE_SOME_OPTION in the environment and some-option in lattice.toml; an option"
    yield "--PART-name of a part stands there in the table [PART]. Flags win over variables, these over the file."
    others = [owner for owner in session.table.owners() if owner not in selected]
    if others:
        yield f"More options: `lattice plugins show NAME` for {', '.join(others)}."
    failed = session.host.failures
    if failed:
        yield f"{len(failed)} plugin(s) failed to load, see `lattice plugins`: {', '.join(record.name for record in failed)}."
