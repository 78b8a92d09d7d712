"""What the inspect plugin registers: the command ``inspect``. Imports nothing that reads a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lattice_core import hookimpl
from lattice_core.descriptors import CommandSpec

if TYPE_CHECKING:
    from collections.abc import Iterable


@hookimpl
def lattice_commands() -> Iterable[CommandSpec]:
    """The command that describes a model."""
    return (
        CommandSpec(
            name="inspect",
            summary="say what a model directory holds: architecture, tensors, bytes, memory, what is missing",
            factory="lattice_inspect.inspect_command:inspect",
            arguments="lattice_inspect.inspect_command:arguments",
            core_options=("backend", "loader", "tokenizer-dir", "context", "max-batch", "dtype"),
        ),
    )
