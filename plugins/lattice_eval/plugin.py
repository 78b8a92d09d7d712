"""What the eval plugin registers: the command ``eval``. Imports nothing that runs a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lattice_core import hookimpl
from lattice_core.descriptors import CommandSpec

if TYPE_CHECKING:
    from collections.abc import Iterable


@hookimpl
def lattice_commands() -> Iterable[CommandSpec]:
    """The command that measures quality."""
    return (
        CommandSpec(
            name="eval",
            summary="measure a model: perplexity of a text",
            factory="lattice_eval.eval_command:evaluate",
            arguments="lattice_eval.eval_command:arguments",
            requires=("numpy",),
            install="pip install numpy",
            core_options=("model", "model-dir", "backend", "loader", "tokenizer-dir", "context", "dtype"),
        ),
    )
