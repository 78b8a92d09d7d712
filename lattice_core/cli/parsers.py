"""argparse for commands with arguments of their own, and for the layout of help. Errors become ``UsageError``."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, NoReturn

from lattice_core.errors import UsageError

if TYPE_CHECKING:
    from lattice_core.options import BoundOption


class Parser(argparse.ArgumentParser):
    """Raises instead of leaving the process, and takes no abbreviated flag."""

    def __init__(self, prog: str, description: str = "") -> None:
        super().__init__(
            prog=prog,
            description=description,
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )

    def error(self, message: str) -> NoReturn:
        """Raise ``UsageError``."""
        msg = f"{message}; see `{self.prog} --help`"
        raise UsageError(msg)


class Given(argparse.Action):
    """Collects the flags as written with their texts, for ``resolve_options`` to convert."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        """Append ``(flag, text)``."""
        del parser
        pairs = list(getattr(namespace, self.dest, None) or [])
        pairs.append((option_string or "", "true" if self.nargs == 0 else str(values)))
        setattr(namespace, self.dest, pairs)


def add_option(parser: argparse._ActionsContainer, bound: BoundOption, *, shown: bool = True) -> None:
    """Add one option with its help. The default, the range and the choices stand in the help."""
    option = bound.option
    switch = option.type == "bool"
    metavar = option.metavar or (
        "{" + ",".join(option.choices) + "}" if option.choices else option.name.rpartition("-")[2].upper()
    )
    parser.add_argument(
        *bound.flags,
        dest=bound.dest,
        action=Given,
        nargs=0 if switch else None,
        metavar=None if switch else metavar,
        default=argparse.SUPPRESS,
        help=_help(bound) if shown else argparse.SUPPRESS,
    )


def _help(bound: BoundOption) -> str:
    option = bound.option
    text = option.help
    if option.default not in (None, False, (), "") and "default" not in text:
        text += f" (default: {option.default})"
    if option.repeatable:
        text += " (may be given more than once)"
    return text.replace("%", "%%")
