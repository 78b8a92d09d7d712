"""Has pip download one wheel into a directory, without installing it, and says in one line why that failed.

The user's own pip configuration (mirrors, proxies, certificates) applies. It must not know what is in the wheel.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from lattice_hub.errors import PullError

if TYPE_CHECKING:
    from collections.abc import Callable

_CHILD = Path(__file__).with_name("pip_child.py")
_POLL_SECONDS = 0.1
_UNREACHABLE = ("NewConnectionError", "Failed to establish", "Failed to resolve", "Name or service not known", "ConnectTimeout")
_MARKS = ("ERROR:", "\N{MULTIPLICATION SIGN}")
_INTERRUPTED = ("ReadTimeoutError", "IncompleteRead", "ProtocolError", "RemoteDisconnected", "not enough bytes")


def download_wheel(requirement: str, directory: Path, lock: int, progress: Callable[[int], None]) -> Path:
    """Download the wheel of ``requirement`` (``NAME==VERSION``) into ``directory`` and return its path.

    ``lock`` is the descriptor of a lock that pip inherits, so that it is held until pip has ended too.
    ``progress(bytes)`` is called as the file grows.

    Raises:
        PullError: pip is missing or failed; the message holds pip's own last line.
    """
    if find_spec("pip") is None:
        raise PullError(f"pip is missing in {sys.executable}: run `{sys.executable} -m ensurepip`, then pull again")
    wheels = directory / "wheels"
    wheels.mkdir()
    log = directory / "pip.log"
    status = _run(_command(requirement, wheels), log, directory, lock, progress)
    if status != 0:
        raise _failure(requirement, status, log)
    found = sorted(wheels.glob("*.whl"))
    if len(found) != 1:
        raise PullError(f"`pip download {requirement}` brought {len(found)} wheels instead of one")
    return found[0]


def _command(requirement: str, wheels: Path) -> list[str]:
    # -P: neither the working directory nor this package may stand in for pip's modules.
    python = [sys.executable, "-P", str(_CHILD)]
    chosen = ["--no-deps", "--only-binary=:all:", "--no-cache-dir", "--dest", str(wheels)]
    quiet = ["--no-input", "--no-color", "--progress-bar=off", "--disable-pip-version-check"]
    return [*python, "download", *chosen, *quiet, requirement]


def _run(command: list[str], log: Path, directory: Path, lock: int, progress: Callable[[int], None]) -> int:
    # pip unpacks and downloads below TMPDIR; nothing is installed, so a rule that only environments take installs is moot.
    environ = {**os.environ, "TMPDIR": str(directory), "PIP_REQUIRE_VIRTUALENV": "0"}
    with (
        log.open("wb") as output,
        subprocess.Popen(  # noqa: S603 - this interpreter, with arguments that are not a shell's
            command, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT, env=environ, pass_fds=(lock,)
        ) as process,
    ):
        try:
            while True:
                with suppress(subprocess.TimeoutExpired):
                    return process.wait(timeout=_POLL_SECONDS)
                progress(_largest_file(directory))
        finally:
            if process.poll() is None:
                process.kill()


def _largest_file(directory: Path) -> int:
    largest = 0
    for path, _, names in os.walk(directory):
        for name in names:
            with suppress(OSError):  # pip may have moved it meanwhile
                largest = max(largest, Path(path, name).stat().st_size)
    return largest


def _failure(requirement: str, status: int, log: Path) -> PullError:
    text = log.read_text(encoding="utf-8", errors="replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(_MARKS)] or lines or [f"exit status {status}, no output"]
    last = errors[-1].removeprefix(_MARKS[1]).strip()
    what = f"`pip download {requirement}` failed"
    if any(sign in text for sign in _UNREACHABLE):
        what += ": the package index cannot be reached, is this machine offline?"
    elif any(sign in text for sign in _INTERRUPTED):
        what += ": the connection to the package index broke off; pull again"
    elif "(from versions: none)" in text:
        what += ": the package index that pip is set to does not have it, or cannot be reached"
    logging.getLogger("lattice.hub").debug("pip said:\n%s", text)
    return PullError(f"{what} (pip: {last})")
