"""The command in a real pseudo-terminal, and through pipes."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager

import pexpect

DEADLINE = 30
PROMPT = r"\x1b\[\?2004h.*>"  # the prompt takes pasted text in brackets, and says so to the terminal
STATISTICS = r"\[\d+ prompt \+ \d+ gen in [0-9.]+ms = [0-9.]+ tok/s \| script\]"


def environment(home) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LATTICE_")}
    # Nothing answers the terminal's question for the cursor position here.
    return kept | {"HOME": str(home), "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1"}


@contextmanager
def terminal(home, *arguments):
    """The REPL at a terminal, at its first prompt."""
    child = pexpect.spawn(
        sys.executable,
        ["-m", "lattice_core", "--frontend", "repl", "--backend", "scripted", *arguments],
        env=environment(home),
        timeout=DEADLINE,
        encoding="utf-8",
    )
    child.delaybeforesend = None
    try:
        child.expect(PROMPT)
        yield child
    finally:
        child.close(force=True)


def status_of(child) -> int:
    """The exit status of a REPL that leaves by itself."""
    child.expect(pexpect.EOF)
    child.close()
    return child.exitstatus


def piped(home, text, *arguments) -> subprocess.CompletedProcess:
    """The REPL with ``text`` as its standard input."""
    return subprocess.run(
        [sys.executable, "-m", "lattice_core", "--frontend", "repl", "--backend", "scripted", *arguments],
        input=text if isinstance(text, bytes) else text.encode(),
        capture_output=True,
        env=environment(home),
        timeout=DEADLINE,
        check=False,
    )
