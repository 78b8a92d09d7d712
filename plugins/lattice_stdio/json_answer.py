"""One request's events as lines: text as it comes, then either the line with the figures or an error, never both."""

from __future__ import annotations

import logging
from enum import Enum
from typing import TYPE_CHECKING, Any

from lattice_core.errors import EngineDiedError, LatticeError
from lattice_core.types import Cancelled, Delta, Done, Failed
from lattice_stdio.events import done_event, error_event, token_event
from lattice_stdio.statistics import log_failure, log_statistics

if TYPE_CHECKING:
    from lattice_core.protocols import EngineAPI
    from lattice_core.types import GenerationRequest
    from lattice_stdio.current import Current
    from lattice_stdio.line_output import LineOutput

log = logging.getLogger("lattice.stdio")


class Outcome(Enum):
    """How a request ended."""

    DONE = "done"
    FAILED = "failed"
    DIED = "died"


def answer_json(
    engine: EngineAPI, request: GenerationRequest, output: LineOutput, current: Current, echo: dict[str, Any]
) -> Outcome:
    """Generate and write the events of ``request``. Raises ``OutputClosedError``; the generation is then cancelled."""
    try:
        generation = engine.submit(request)
    except LatticeError as error:
        return _failed(output, error, echo)
    held: tuple[int, ...] = ()
    with current.running(generation):
        for event in generation:
            if isinstance(event, Delta):
                # Tokens that end inside a character have no text yet: they belong to the text that follows.
                held += event.token_ids
                if event.text:
                    output.write(token_event(event.text, held, echo))
                    held = ()
            elif isinstance(event, Done):
                output.write(done_event(event, echo))
                log_statistics(engine, event, generation.adapter)
            elif isinstance(event, Failed):
                return _failed(output, event.error, echo)
            elif isinstance(event, Cancelled):
                output.write(error_event(f"generation failed: {event.reason}", echo, "cancelled"))
                return Outcome.FAILED
    return Outcome.DONE


def _failed(output: LineOutput, error: LatticeError, echo: dict[str, Any]) -> Outcome:
    log_failure(error)
    output.write(error_event(f"generation failed: {error.message}", echo, error.code))
    return Outcome.DIED if isinstance(error, EngineDiedError) else Outcome.FAILED
