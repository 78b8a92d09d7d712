from __future__ import annotations

import os
import signal

import pytest

from tests.repl.terminal import PROMPT, STATISTICS, status_of, terminal


@pytest.fixture
def gate(tmp_path):
    path = tmp_path / "gate"
    os.mkfifo(path)
    # Opened for reading too, so that opening waits for nobody.
    fd = os.open(path, os.O_RDWR)
    yield path, lambda count: os.write(fd, b"1" * count)
    os.close(fd)


def test_a_conversation_goes_on_until_an_empty_line(tmp_path):
    with terminal(tmp_path) as child:
        child.send("[[say:hello there]]\r")
        child.expect("hello there\r\n")
        child.expect(STATISTICS)
        child.expect(PROMPT)
        child.send("[[say:and again]]\r")
        child.expect("and again\r\n")
        child.expect(PROMPT)
        child.send("\r")
        assert status_of(child) == 0


def test_ctrl_d_leaves(tmp_path):
    with terminal(tmp_path) as child:
        child.sendeof()
        assert status_of(child) == 0


def test_quit_leaves(tmp_path):
    with terminal(tmp_path) as child:
        child.send("/quit\r")
        assert status_of(child) == 0


def test_an_answer_appears_while_it_is_made(tmp_path, gate):
    path, permit = gate
    with terminal(tmp_path, "--scripted-gate", str(path)) as child:
        child.send("[[say:abc]]\r")
        child.expect(r"2004l.*a")
        permit(1)
        child.expect_exact("b")
        permit(100)
        child.expect_exact("c\r\n")


def test_ctrl_c_cancels_an_answer_and_what_was_shown_stays_in_the_conversation(tmp_path, gate):
    path, permit = gate
    with terminal(tmp_path, "--scripted-gate", str(path), "--repl-system", "") as child:
        child.send("[[say:kept]][[repeat:500]]\r")
        permit(3)
        child.expect(r"2004l.*kept")
        child.sendintr()
        child.expect_exact("^C")
        permit(490)
        child.expect(r"\[cancelled\]")
        child.expect(PROMPT)
        permit(4000)
        child.send("[[echo]]\r")
        child.expect_exact("assistant\r\nkept")
        child.expect(STATISTICS)


def test_ctrl_c_at_the_prompt_clears_the_line_and_a_second_one_leaves(tmp_path):
    with terminal(tmp_path) as child:
        child.send("half a line")
        child.expect_exact("line")
        child.sendintr()
        child.expect("Ctrl-C again or Ctrl-D leaves")
        child.expect(PROMPT)
        child.send("[[say:fresh]]\r")
        child.expect("fresh\r\n")
        child.expect(PROMPT)
        child.sendintr()
        child.expect("Ctrl-C again or Ctrl-D leaves")
        child.expect(PROMPT)
        child.sendintr()
        assert status_of(child) == 0


def test_sigterm_leaves_from_the_prompt(tmp_path):
    with terminal(tmp_path) as child:
        child.kill(signal.SIGTERM)
        assert status_of(child) == 0


def test_sigterm_leaves_from_an_answer(tmp_path, gate):
    path, permit = gate
    with terminal(tmp_path, "--scripted-gate", str(path)) as child:
        child.send("[[repeat:500]]\r")
        child.expect(r"2004l.*x")
        child.kill(signal.SIGTERM)
        permit(500)
        assert status_of(child) == 0


def test_an_engine_that_dies_ends_the_conversation_with_its_own_status(tmp_path):
    with terminal(tmp_path, "--scripted-fail", "steps") as child:
        for _ in range(3):
            child.send("x\r")
            child.expect("error: a model step failed|the engine died")
        assert status_of(child) == 5


def test_lines_are_kept_in_a_history_that_only_the_user_may_read(tmp_path):
    path = tmp_path / ".lattice" / "repl_history"
    with terminal(tmp_path) as child:
        child.send("[[say:first]]\r")
        child.expect("first\r\n")
        child.expect(PROMPT)
        child.sendeof()
        assert status_of(child) == 0
    assert "+[[say:first]]" in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    with terminal(tmp_path) as child:
        child.send("\x1b[A\r")  # the up arrow
        child.expect("first\r\n.*" + STATISTICS)


def test_the_history_may_be_off_or_impossible(tmp_path):
    with terminal(tmp_path, "--repl-history", "off") as child:
        child.send("[[say:a]]\r")
        child.expect(STATISTICS)
    assert not (tmp_path / ".lattice").exists()
    (tmp_path / "file").touch()
    with terminal(tmp_path, "--repl-history", str(tmp_path / "file" / "history")) as child:
        child.send("[[say:a]]\r")
        child.expect(STATISTICS)


def test_a_pasted_text_of_several_lines_is_one_message(tmp_path):
    with terminal(tmp_path, "--repl-system", "") as child:
        child.send("\x1b[200~one\ntwo\x1b[201~[[echo]]\r")
        child.expect_exact("user\r\none\r\ntwo[[echo]]")
