"""A small HTTP server on loopback whose answers can be held back at a byte, so that tests can act at a known moment."""

from __future__ import annotations

import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

WAIT = 60


class Hold:
    """Lets ``after`` bytes of answers through whose path holds ``path``, then waits for ``release``."""

    def __init__(self, path: str, after: int) -> None:
        self.path = path
        self.after = after
        self.reached = threading.Event()
        self._released = threading.Event()

    def pause(self) -> None:
        self.reached.set()
        self._released.wait(WAIT)

    def release(self) -> None:
        self._released.set()


class Loopback:
    """Serves ``answer(handler)`` on a free port; ``requests`` holds (method, path, headers) in order of arrival."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.hold: Hold | None = None
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                outer.requests.append((self.command, self.path, {k.lower(): v for k, v in self.headers.items()}))
                with suppress(BrokenPipeError, ConnectionResetError):
                    outer.answer(self)

            do_HEAD = do_GET  # noqa: N815 - the name that http.server looks for

            def log_message(self, *args) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def answer(self, handler) -> None:
        raise NotImplementedError

    def send(
        self, handler, body: bytes, *, status: int = 200, headers: dict[str, str] | None = None, cut: int | None = None
    ) -> None:
        """Send ``body``; with ``cut`` the connection closes after that many bytes, though the headers promise all."""
        handler.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            handler.send_header(name, value)
        handler.end_headers()
        if handler.command == "HEAD":
            return
        hold = self.hold if self.hold is not None and self.hold.path in handler.path else None
        if hold is not None:
            handler.wfile.write(body[: hold.after])
            handler.wfile.flush()
            hold.pause()
            handler.wfile.write(body[hold.after :])
        elif cut is not None:
            handler.wfile.write(body[:cut])
            handler.close_connection = True
        else:
            handler.wfile.write(body)

    def close(self) -> None:
        if self.hold is not None:
            self.hold.release()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(WAIT)
