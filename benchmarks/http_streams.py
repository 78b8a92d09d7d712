"""Starts an OpenAI-compatible server and measures what concurrent streaming clients get from it. Standard library only."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import socket
import statistics
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import workload as w

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

START_SECONDS = 60.0
SUBJECTS = ("a harbour", "a mountain", "a bakery", "a railway", "a forest", "a market", "a theatre", "a river")
"""No two conversations begin alike, so that a cache of prompts helps nobody."""


@contextlib.contextmanager
def server(command: Sequence[str], environment: Mapping[str, str], port: int, log: Path) -> Iterator[None]:
    """Run a server from when it answers ``GET /v1/models`` until the block ends."""
    with log.open("w") as file:
        process = subprocess.Popen(command, env=dict(environment), stdout=file, stderr=subprocess.STDOUT)
        try:
            _wait_until_it_answers(process, port, log)
            yield
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def free_port() -> int:
    """A port that nobody listened on a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def measure(port: int, tokens: int) -> dict[str, Any]:
    """Generated tokens per second, all clients together, from the first request to the last byte, for 1 and 8 clients."""
    years = itertools.count(1900)
    _stream(port, "Tell a short story about a clock.", 4)
    answer: dict[str, Any] = {}
    for count in (1, w.STREAMS):
        made: list[int] = []

        def clients(count: int = count, made: list[int] = made) -> None:
            texts = [
                f"In {SUBJECTS[n]} in the year {next(years)} a stranger arrives. Tell the whole story." for n in range(count)
            ]
            with ThreadPoolExecutor(count) as pool:
                made.append(sum(pool.map(lambda text: _stream(port, text, tokens), texts)))

        seconds = w.timed(clients)
        answer[f"http_{count}"] = statistics.median(total / spent for total, spent in zip(made, seconds, strict=True))
    return answer


def _stream(port: int, text: str, tokens: int) -> int:
    """One streamed conversation; returns the number of tokens that the server says it made."""
    body = {
        "messages": [{"role": "user", "content": text}],
        "max_tokens": tokens,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    with contextlib.closing(connection):
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        if response.status != http.HTTPStatus.OK:
            raise RuntimeError(f"the server answered {response.status}: {response.read().decode(errors='replace')[:300]}")
        made = 0
        for line in response:
            if line.startswith(b"data: {"):
                usage = json.loads(line[6:]).get("usage")
                made = usage["completion_tokens"] if usage else made
    if made == 0:
        raise RuntimeError("the server reported no tokens")
    return int(made)


def _wait_until_it_answers(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        if process.poll() is not None:
            raise SystemExit(f"the server ended with status {process.returncode}: {log.read_text()[-500:]}")
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
            connection.request("GET", "/v1/models")
            if connection.getresponse().status == http.HTTPStatus.OK:
                return
        time.sleep(0.1)
    raise SystemExit(f"the server did not answer within {START_SECONDS:.0f} s: {log.read_text()[-500:]}")
