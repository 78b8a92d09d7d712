"""The frontend ``stdio``: which of its three ways of working the options ask for, and what they share.

``--prompt TEXT`` answers a message as plain text; ``--json --prompt TEXT`` answers a raw prompt as events; ``--json --serve``
answers request lines. ``--prompt -`` takes the text from stdin.
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING

from lattice_core.adapter_names import names_adapter
from lattice_core.errors import ExitCode, UsageError
from lattice_core.types import GenerationRequest, Message
from lattice_core.wire import RequestDefaults
from lattice_stdio.current import Current
from lattice_stdio.json_answer import Outcome, answer_json
from lattice_stdio.json_serve import JsonServer
from lattice_stdio.line_input import LineInput, LineTooLongError
from lattice_stdio.line_output import LineOutput, OutputClosedError
from lattice_stdio.plain_answer import answer_plainly, is_terminal
from lattice_stdio.wake import Wake

if TYPE_CHECKING:
    from lattice_core.descriptors import Settings
    from lattice_core.errors import LatticeError
    from lattice_core.protocols import EngineAPI, StopSignal

log = logging.getLogger("lattice.stdio")

_STATUS = {Outcome.DONE: ExitCode.OK, Outcome.FAILED: ExitCode.FAILURE, Outcome.DIED: ExitCode.ENGINE_DIED}


class StdioFrontend:
    """Implements ``protocols.Frontend`` over two file descriptors."""

    def __init__(self, settings: Settings, stdin: int = 0, stdout: int = 1) -> None:
        """Check the options. Raises ``UsageError`` for a combination that asks for nothing or for two things at once."""
        core = settings.core
        self._json, self._serve, self._prompt = core["json"], core["serve"], core["prompt"]
        self._defaults = RequestDefaults.from_settings(settings)
        self._stdin, self._stdout = stdin, stdout
        if self._serve and not self._json:
            raise UsageError("--serve needs --json: requests are read as JSON lines", param="serve")
        if self._serve and self._prompt is not None:
            raise UsageError("--serve reads its prompts from stdin: leave out --prompt or --serve", param="prompt")
        if self._json and not self._serve and self._prompt is None:
            raise UsageError("--json mode requires --prompt (or --serve for persistent serve mode)", param="json")
        if not self._json and self._prompt is None:
            raise UsageError("there is no prompt: give --prompt TEXT, --prompt - for stdin, or --json --serve", param="prompt")
        named = [text for text in core["lora"] if names_adapter(text)]
        # A variable or a configuration file may name adapters for other runs.
        if named and not self._serve and settings.sources.get("lora") == "flag":
            raise UsageError(
                f"--lora {named[0]}: a single --prompt names no adapter; give --lora {named[0].partition('=')[2]}", param="lora"
            )

    def serve(self, engine: EngineAPI, stop: StopSignal) -> int:
        """Answer what the options ask for; returns the exit status.

        ``stop`` cancels the running generation: the loop then ends with 0, a single answer, which is incomplete, with 1.
        """
        current = Current()
        with Wake() as wake:

            def end() -> None:
                wake.set()
                current.cancel()

            output = LineOutput(self._stdout, wake)
            lines = LineInput(self._stdin, wake)
            if self._serve:
                server = JsonServer(engine, stop, lines, output, current, self._defaults)

                def died(error: LatticeError) -> None:
                    server.died(error)
                    wake.set()

                stop.add_callback(end)
                engine.on_death(died)
                return server.serve()
            stop.add_callback(end)
            try:
                return self._answer_one(engine, lines, output, current)
            except OutputClosedError as error:
                log.warning("stdout is closed (%s): the generation is cancelled", error)
                return ExitCode.FAILURE

    def _answer_one(self, engine: EngineAPI, lines: LineInput, output: LineOutput, current: Current) -> ExitCode:
        prompt = _text_of(lines) if self._prompt == "-" else self._prompt
        if prompt is None:
            return ExitCode.FAILURE
        if self._json:
            request = GenerationRequest(prompt=prompt, max_tokens=self._defaults.max_tokens, sampling=self._defaults.sampling)
            return _STATUS[answer_json(engine, request, output, current, {})]
        request = GenerationRequest(
            messages=(Message("user", prompt),), max_tokens=self._defaults.max_tokens, sampling=self._defaults.sampling
        )
        return answer_plainly(engine, request, output, current, terminal=is_terminal(self._stdout))


def create(settings: Settings) -> StdioFrontend:
    """The factory of the frontend ``stdio``."""
    # Where the process was started with one of them closed, its number may belong to any other file by now.
    return StdioFrontend(settings, -1 if sys.stdin is None else 0, -1 if sys.stdout is None else 1)


def _text_of(lines: LineInput) -> str | None:
    """The prompt that stands on stdin, without the line break at its end; None when the wait for it was ended."""
    try:
        data = lines.read_all()
        return None if data is None else data.decode("utf-8").removesuffix("\n").removesuffix("\r")
    except LineTooLongError as error:
        raise UsageError(f"--prompt -: stdin is not taken: {error}", param="prompt") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"--prompt -: stdin is not UTF-8 at byte {error.start}", param="prompt") from error
