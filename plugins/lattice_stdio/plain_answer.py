"""One answer to one prompt as plain text: the answer on stdout, figures and errors on stderr."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from lattice_core.errors import EngineDiedError, ExitCode, LatticeError
from lattice_core.types import Cancelled, Delta, Done, Failed
from lattice_stdio.statistics import log, log_failure, log_statistics

if TYPE_CHECKING:
    from lattice_core.protocols import EngineAPI
    from lattice_core.types import GenerationRequest
    from lattice_stdio.current import Current
    from lattice_stdio.line_output import LineOutput

_NOT_FOR_TERMINALS = {code: None for code in [*range(0x20), *range(0x7F, 0xA0)] if chr(code) not in "\t\n"}


def answer_plainly(
    engine: EngineAPI, request: GenerationRequest, output: LineOutput, current: Current, *, terminal: bool
) -> ExitCode:
    """Generate and write the text as it comes, then a line break.

    On a ``terminal`` control characters are left out, so that an answer cannot drive it. Raises ``OutputClosedError``.
    """
    try:
        generation = engine.submit(request)
    except LatticeError as error:
        return _failed(error)
    status = ExitCode.FAILURE
    open_line = False
    with current.running(generation):
        for event in generation:
            if isinstance(event, Delta):
                text = event.text.translate(_NOT_FOR_TERMINALS) if terminal else event.text
                output.write(text.encode("utf-8", "replace"))
                open_line = open_line or bool(text)
            elif isinstance(event, Done):
                output.write(b"\n")
                log_statistics(engine, event, generation.adapter)
                status = ExitCode.OK
            elif isinstance(event, Failed | Cancelled):
                if open_line:
                    output.write(b"\n")
                if isinstance(event, Failed):
                    status = _failed(event.error)
                else:
                    log.error("the answer was cut: %s", event.reason)
    return status


def is_terminal(fd: int) -> bool:
    """Whether ``fd`` is a terminal; a closed one is none."""
    try:
        return os.isatty(fd)
    except OSError:
        return False


def _failed(error: LatticeError) -> ExitCode:
    log_failure(error)
    return ExitCode.ENGINE_DIED if isinstance(error, EngineDiedError) else ExitCode.FAILURE
