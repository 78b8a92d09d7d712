"""The loop of ``--json --serve``: one request a line, answered in order, until the input ends."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from lattice_core.errors import EngineDiedError, ExitCode, LatticeError
from lattice_core.wire import JSONSyntaxError, load_json
from lattice_stdio.events import READY, error_event
from lattice_stdio.json_answer import Outcome, answer_json
from lattice_stdio.line_input import LineTooLongError
from lattice_stdio.line_output import OutputClosedError
from lattice_stdio.request_line import echo_of, parse_request

if TYPE_CHECKING:
    from lattice_core.protocols import EngineAPI, StopSignal
    from lattice_core.wire import RequestDefaults
    from lattice_stdio.current import Current
    from lattice_stdio.line_input import LineInput
    from lattice_stdio.line_output import LineOutput

log = logging.getLogger("lattice.stdio")

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class JsonServer:
    """Reads request lines and answers each before it reads the next."""

    def __init__(
        self,
        engine: EngineAPI,
        stop: StopSignal,
        lines: LineInput,
        output: LineOutput,
        current: Current,
        defaults: RequestDefaults,
    ) -> None:
        self._engine = engine
        self._stop = stop
        self._lines = lines
        self._output = output
        self._current = current
        self._defaults = defaults
        self._death: LatticeError | None = None

    def died(self, error: LatticeError) -> None:
        """Remember that the engine died; the caller ends the wait for the next line."""
        self._death = error

    def serve(self) -> ExitCode:
        """Until the input ends, ``stop`` is set, nobody reads the output or the engine has died."""
        try:
            self._output.write(READY)
            return self._loop()
        except OutputClosedError as error:
            log.warning("stdout is closed (%s): the loop ends", error)
            return ExitCode.OK

    def _loop(self) -> ExitCode:
        first = True
        while not self._stop.is_set():
            try:
                line = self._lines.read_line()
            except LineTooLongError as error:
                self._output.write(error_event(f"malformed request: {error}", {}))
                continue
            if line is None:
                break
            line = line.removeprefix(_BYTE_ORDER_MARK) if first else line
            first = False
            if line.strip() and self._answer(line) is Outcome.DIED:
                return ExitCode.ENGINE_DIED
        if self._death is not None:
            message = f"generation failed: {self._death.message}"
            self._output.write(error_event(message, {}, EngineDiedError.code))
            return ExitCode.ENGINE_DIED
        return ExitCode.OK

    def _answer(self, line: bytes) -> Outcome:
        try:
            body = load_json(line)
        except JSONSyntaxError as error:
            self._output.write(error_event(f"malformed request: {error}", {}))
            return Outcome.FAILED
        echo = echo_of(body)
        try:
            request = parse_request(body, self._defaults)
        except LatticeError as error:
            self._output.write(error_event(error.message, echo, error.code))
            return Outcome.FAILED
        return answer_json(self._engine, request, self._output, self._current, echo)
