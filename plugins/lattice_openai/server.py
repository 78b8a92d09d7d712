"""The frontend itself: socket, event loop, uvicorn, and the order of starting and stopping. Knows no route's content."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from typing import TYPE_CHECKING

import uvicorn

from lattice_core.errors import ExitCode
from lattice_openai.app import CHAT_ROUTE, HEALTH_ROUTE, MODELS_ROUTE, build_app
from lattice_openai.config import API_KEY_VARIABLE, ServerConfig
from lattice_openai.in_flight import InFlight
from lattice_openai.listener import bind, listen, url_host
from lattice_openai.security import allowed_hosts, is_loopback
from lattice_openai.telemetry import TelemetryWriter, stdout_fd

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator

    from lattice_core.descriptors import Settings
    from lattice_core.errors import LatticeError
    from lattice_core.protocols import EngineAPI, StopSignal

_LOG = logging.getLogger("lattice.openai")
_LAST_WORDS_SECONDS = 2.0
"""How long cancelled requests get to send their last event before their connections are dropped."""

_IDLE_CONNECTION_SECONDS = 75


def create(settings: Settings) -> OpenAIFrontend:
    """The factory of the frontend. Raises ``UsageError`` for settings, ``LatticeError`` for an address that is taken."""
    frontend = OpenAIFrontend(settings)
    frontend.hold_address()
    return frontend


class OpenAIFrontend:
    """Serves the OpenAI chat API over HTTP until told to stop or until the engine dies."""

    def __init__(self, settings: Settings, *, telemetry_fd: int | None = None) -> None:
        """``telemetry_fd`` is where telemetry lines go; standard output where it is None. Raises ``UsageError``."""
        self._config = ServerConfig.from_settings(settings, os.environ)
        self._telemetry_fd = telemetry_fd
        self._held: socket.socket | None = None

    def hold_address(self) -> None:
        """Bind now what ``serve`` will listen on. Raises ``LatticeError`` when that cannot be had."""
        self._held = bind(self._config.host, self._config.port)

    def serve(self, engine: EngineAPI, stop: StopSignal) -> int:
        """Serve; returns ``ExitCode.OK`` after a stop and ``ExitCode.ENGINE_DIED`` when the engine died.

        Raises ``LatticeError`` when the address cannot be bound. Uses an event loop of its own and no signal handler.
        """
        listener, self._held = self._held or bind(self._config.host, self._config.port), None
        telemetry = TelemetryWriter(stdout_fd() if self._telemetry_fd is None else self._telemetry_fd)
        try:
            listen(listener, self._config.host)
            return asyncio.run(self._serve(engine, stop, listener, telemetry))
        finally:
            listener.close()
            telemetry.close()

    async def _serve(
        self, engine: EngineAPI, stop: StopSignal, listener: socket.socket, telemetry: TelemetryWriter
    ) -> ExitCode:
        address, port = listener.getsockname()[:2]
        in_flight = InFlight()
        hosts = allowed_hosts(self._config.host, address, self._config.allowed_hosts)
        app = build_app(engine, self._config, hosts=hosts, in_flight=in_flight, telemetry=telemetry)

        def announce() -> None:
            base = f"http://{url_host(self._config.host.strip('[]'))}:{port}"
            _LOG.info("OpenAI-compatible API on %s/v1", base)
            _LOG.info("  POST %s   GET %s   GET %s", CHAT_ROUTE, MODELS_ROUTE, HEALTH_ROUTE)
            if not self._config.api_keys and not is_loopback(address):
                _LOG.warning(
                    "everyone who reaches %s can use this server; set %s or --openai-api-key-file",
                    base,
                    API_KEY_VARIABLE,
                )
            telemetry.emit("ready", port=port)

        server = _Server(_uvicorn_config(app), announce)
        stopping, died = asyncio.Event(), asyncio.Event()
        stop.add_callback(_setter(stopping))
        set_died = _setter(died)

        def on_death(_error: LatticeError) -> None:
            _LOG.error("the engine died; the server ends in %g s", self._config.linger)
            set_died()

        engine.on_death(on_death)
        ending = asyncio.create_task(self._end(server, in_flight, stopping, died))
        try:
            await server.serve(sockets=[listener])
        finally:
            ending.cancel()
            await asyncio.wait({ending})
        return ExitCode.ENGINE_DIED if died.is_set() else ExitCode.OK

    async def _end(self, server: uvicorn.Server, in_flight: InFlight, stopping: asyncio.Event, died: asyncio.Event) -> None:
        """Wait for the reason to end, then: accept no more, let requests finish, cancel them, drop them."""
        waits = {asyncio.create_task(event.wait()) for event in (stopping, died)}
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        if died.is_set():
            # Long enough for a supervisor's probe to see the 503.
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), self._config.linger)
        server.should_exit = True
        await asyncio.sleep(self._config.drain)
        in_flight.cancel_all()
        await asyncio.sleep(_LAST_WORDS_SECONDS)
        server.force_exit = True


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers (the process has its own), telling when it listens."""

    def __init__(self, config: uvicorn.Config, announce: Callable[[], None]) -> None:
        super().__init__(config)
        self._announce = announce

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        self._announce()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _uvicorn_config(app: object) -> uvicorn.Config:
    return uvicorn.Config(
        app,  # type: ignore[arg-type]  # uvicorn's own ASGI types differ from Starlette's in name only
        http="h11",
        ws="none",
        loop="asyncio",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        # What uvicorn would log is an abandoned connection or a fault that the telemetry layer has logged already.
        log_level="critical",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=_IDLE_CONNECTION_SECONDS,
    )


def _setter(event: asyncio.Event) -> Callable[[], None]:
    """A function that sets ``event`` from any thread, also after its loop has ended."""
    loop = asyncio.get_running_loop()

    def set_event() -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(event.set)

    return set_event
