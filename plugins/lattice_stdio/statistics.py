"""What the operator sees on stderr of each request. Knows no protocol."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from lattice_core.errors import EngineDiedError, StepError
from lattice_stdio.events import tokens_per_second

if TYPE_CHECKING:
    from lattice_core.errors import LatticeError
    from lattice_core.protocols import EngineAPI
    from lattice_core.types import Done

log = logging.getLogger("lattice.stdio")


def log_statistics(engine: EngineAPI, done: Done, adapter: str | None) -> None:
    """One line: the device, the adapter, the tokens of prompt and answer, milliseconds, tokens per second."""
    log.info(
        "%s%s: %d prompt + %d gen in %dms = %.1f tok/s",
        engine.model_info.device,
        f" + {adapter}" if adapter else "",
        done.usage.prompt_tokens,
        done.usage.completion_tokens,
        int(done.timings.total * 1000),
        tokens_per_second(done),
    )


def log_failure(error: LatticeError) -> None:
    """One line with the cause, and what only the operator may see; none for what the engine has logged itself."""
    if not isinstance(error, StepError | EngineDiedError):
        log.error("%s%s", error.message, f" ({error.detail})" if error.detail else "")
