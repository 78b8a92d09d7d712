"""What only a process of its own can show: signals, closed files, exit statuses."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys

import pytest

from tests.stdio.running import DEADLINE, Lines, ended, lattice


def test_the_loop_answers_and_ends_with_the_input():
    with lattice("--json", "--serve") as process:
        lines = Lines(process.stdout.fileno())
        assert lines.read() == b'@@lattice {"ev":"ready"}'
        process.stdin.write(b'{"prompt":"[[say:a]]","max_tokens":5}\n')
        process.stdin.flush()
        assert lines.read() == b'@@lattice {"ev":"gen_token","token":"a","done":false,"token_id":97}'
        assert lines.event()["done"]
        process.stdin.close()
        assert lines.read() is None
        status, errors = ended(process)
    assert status == 0
    assert "[lattice] script: 9 prompt + 1 gen in " in errors


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_loop_although_stdin_stays_open(number):
    with lattice("--json", "--serve") as process:
        assert Lines(process.stdout.fileno()).event() == {"ev": "ready"}
        process.send_signal(number)
        status, _ = ended(process)
    assert status == 0


def test_a_signal_cancels_the_running_request(tmp_path):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    with lattice("--json", "--serve", "--scripted-gate", str(gate)) as process:
        lines = Lines(process.stdout.fileno())
        assert lines.event() == {"ev": "ready"}
        process.stdin.write(b'{"prompt":"[[repeat:500]]"}\n')
        process.stdin.flush()
        assert lines.event()["token"] == "x"
        process.send_signal(signal.SIGTERM)
        with gate.open("wb") as permits:
            permits.write(b"1" * 400)
            permits.flush()
            assert lines.answer()[-1]["code"] == "cancelled"
            status, _ = ended(process)
    assert status == 0


def test_a_reader_that_goes_away_ends_the_loop_with_success():
    with lattice("--json", "--serve") as process:
        assert Lines(process.stdout.fileno()).event() == {"ev": "ready"}
        process.stdout.close()
        process.stdin.write(b'{"prompt":"[[repeat:50]]"}\n')
        process.stdin.flush()
        status, errors = ended(process)
    assert status == 0
    assert "stdout is closed (Broken pipe)" in errors
    assert "Traceback" not in errors
    assert "Exception ignored" not in errors


def test_a_reader_that_goes_away_fails_a_single_answer(tmp_path):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    with lattice("--json", "--prompt", "[[repeat:50]]", "--scripted-gate", str(gate)) as process:
        assert Lines(process.stdout.fileno()).event()["token"] == "x"
        process.stdout.close()
        with gate.open("wb") as permits:
            permits.write(b"1" * 50)
            permits.flush()
            status, errors = ended(process)
    assert status == 1
    assert "Exception ignored" not in errors


def test_files_that_were_never_open_are_no_crash():
    command = 'exec "$0" -m lattice_core --backend scripted'
    for line in ("--json --serve <&-", "--json --serve >&-", "--json --prompt x >&-", "--prompt x 2>&-"):
        done = subprocess.run(
            ["/bin/sh", "-c", f"{command} {line}", sys.executable],
            input=b"",
            capture_output=True,
            timeout=DEADLINE,
            check=False,
        )
        assert (done.returncode, b"Traceback" in done.stderr) == (0, False), (line, done)


def test_wrong_combinations_are_usage_errors_before_the_model_loads():
    with lattice("--json") as process:
        status, errors = ended(process)
    assert status == 2
    assert "--json mode requires --prompt (or --serve for persistent serve mode)" in errors
    assert "loading" not in errors


def test_an_engine_that_dies_ends_the_process_with_its_own_status():
    with lattice("--json", "--serve", "--scripted-fail", "steps") as process:
        lines = Lines(process.stdout.fileno())
        assert lines.event() == {"ev": "ready"}
        for _ in range(4):
            process.stdin.write(b'{"prompt":"x"}\n')
        process.stdin.flush()
        codes = []
        while (event := lines.event()) is not None:
            codes.append(event["code"])
        status, _ = ended(process)
    assert codes[-1] == "engine_died"
    assert status == 5


def test_on_a_terminal_an_answer_cannot_drive_it():
    ours, theirs = pty.openpty()
    try:
        with lattice("--prompt", "[[say:\x1b]0;title\x07\tok\x9b]]", stdout=theirs) as process:
            status, _ = ended(process)
            shown = os.read(ours, 4096)
    finally:
        os.close(ours)
        os.close(theirs)
    assert status == 0
    assert shown == b"]0;title\tok\r\n"
