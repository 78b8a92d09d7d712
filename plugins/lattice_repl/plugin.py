"""What this plugin registers: the frontend ``repl``. Imports nothing heavy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lattice_core import hookimpl
from lattice_core.descriptors import FrontendSpec, Option

if TYPE_CHECKING:
    from collections.abc import Iterable

SYSTEM = "You are a helpful assistant. Be concise and direct."
HISTORY = "~/.lattice/repl_history"


@hookimpl
def lattice_frontends() -> Iterable[FrontendSpec]:
    """The frontend."""
    yield FrontendSpec(
        name="repl",
        summary="a conversation at a prompt",
        factory="lattice_repl.frontend:create",
        requires=("prompt_toolkit",),
        install="pip install prompt-toolkit",
        options=(
            Option("system", "the system message; an empty text is none", default=SYSTEM, metavar="TEXT"),
            Option("history", "file that keeps the lines typed at a terminal; off keeps none", default=HISTORY, metavar="FILE"),
        ),
    )
