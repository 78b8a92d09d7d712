"""What this plugin registers: the frontend ``stdio``. Imports nothing heavy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lattice_core import hookimpl
from lattice_core.descriptors import FrontendSpec

if TYPE_CHECKING:
    from collections.abc import Iterable


@hookimpl
def lattice_frontends() -> Iterable[FrontendSpec]:
    """The frontend."""
    yield FrontendSpec(
        name="stdio",
        summary="answers --prompt, or JSON lines on stdin with --json --serve",
        factory="lattice_stdio.frontend:create",
    )
