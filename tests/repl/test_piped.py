from __future__ import annotations

import re

from tests.repl.terminal import piped


def test_each_line_is_a_message_and_the_end_of_the_input_leaves(tmp_path):
    done = piped(tmp_path, "[[say:one]]\n[[say:two]]")
    assert done.returncode == 0
    assert done.stdout == b"> one\n> two\n> "
    figures = re.findall(rb"^\[\d+ prompt \+ 3 gen in \d+\.\dms = \d+\.\d tok/s \| script\]$", done.stderr, re.MULTILINE)
    assert len(figures) == 2
    assert b"=== scripted (scripted) on script ===" in done.stderr


def test_an_empty_line_leaves(tmp_path):
    done = piped(tmp_path, "[[say:one]]\n  \n[[say:never]]\n")
    assert (done.returncode, done.stdout) == (0, b"> one\n> ")


def test_the_system_message_and_the_earlier_turns_are_in_the_prompt(tmp_path):
    done = piped(tmp_path, "[[say:  trimmed  ]]\n[[echo]]\n")
    conversation = (
        b"<|im_start|>system\nYou are a helpful assistant. Be concise and direct.<|im_end|>\n"
        b"<|im_start|>user\n[[say:  trimmed  ]]<|im_end|>\n<|im_start|>assistant\ntrimmed<|im_end|>\n"
        b"<|im_start|>user\n[[echo]]<|im_end|>\n<|im_start|>assistant\n"
    )
    assert done.stdout == b">   trimmed  \n> " + conversation + b"\n> "


def test_the_system_message_is_an_option(tmp_path):
    assert b"<|im_start|>system\nS<|im_end|>\n" in piped(tmp_path, "[[echo]]\n", "--repl-system", "S").stdout
    assert piped(tmp_path, "[[echo]]\n", "--repl-system", "").stdout.startswith(b"> <|im_start|>user\n")


def test_commands_change_what_follows(tmp_path):
    done = piped(tmp_path, "[[say:old]]\n/reset\n/system new\n/set max-tokens 900\n[[echo]]\n")
    assert done.stdout.startswith(b"> old\n> > > > <|im_start|>system\nnew<|im_end|>\n<|im_start|>user\n[[echo]]")
    assert b"max-tokens 900\n" in done.stderr


def test_a_cut_answer_says_what_cut_it(tmp_path):
    done = piped(tmp_path, "[[repeat:50]]\n", "--max-tokens", "5")
    assert done.stdout == b"> xxxxx\n> "
    assert b"[cut at 5 tokens; /set max-tokens N allows more]" in done.stderr


def test_two_slashes_begin_a_message_with_one(tmp_path):
    done = piped(tmp_path, "//etc [[echo]]\n", "--repl-system", "")
    assert b"user\n/etc [[echo]]<|im_end|>" in done.stdout


def test_the_oldest_turns_are_left_out_when_the_context_is_full(tmp_path):
    lines = "".join(f"[[say:{number}]]{'.' * 60}\n" for number in range(6))
    done = piped(tmp_path, lines, "--scripted-context", "300", "--repl-system", "")
    assert done.stdout == b"".join(b"> %d\n" % number for number in range(6)) + b"> "
    assert b"oldest turns were left out: the context is 300 tokens" in done.stderr


def test_a_message_beyond_the_context_is_refused_and_the_conversation_stays(tmp_path):
    lines = "[[say:kept]]\n" + "." * 500 + "\n[[echo]]\n"
    done = piped(tmp_path, lines, "--scripted-context", "300", "--repl-system", "")
    assert b"error: the prompt has" in done.stderr
    assert b"assistant\nkept<|im_end|>" in done.stdout
    assert done.returncode == 0


def test_a_failed_answer_is_one_line_and_its_turn_is_dropped(tmp_path):
    done = piped(tmp_path, "[[say:abc]][[fail:1]]\n[[echo]]\n", "--repl-system", "")
    assert done.stdout.startswith(b"> a\n> <|im_start|>user\n[[echo]]<|im_end|>")
    assert b"error: a model step failed\n" in done.stderr
    assert b"Traceback" not in done.stderr


def test_a_dead_engine_is_said_and_has_its_own_status(tmp_path):
    done = piped(tmp_path, "x\n" * 5, "--scripted-fail", "steps")
    assert done.returncode == 5
    assert done.stderr.count(b"error: a model step failed\n") <= 3
    assert b"the engine died: " in done.stderr


def test_an_answer_cannot_drive_the_terminal(tmp_path):
    done = piped(tmp_path, "[[say:\x1b[31mred\x07\x9b2J\ttab\r]]\n")
    assert done.stdout == b"> [31mred2J\ttab\n> "


def test_what_is_no_utf8_is_replaced(tmp_path):
    done = piped(tmp_path, b"[[say:a\xff]]\n")
    assert (done.returncode, done.stdout) == (0, "> a\ufffd\n> ".encode())


def test_a_prompt_given_as_an_option_is_the_first_message(tmp_path):
    done = piped(tmp_path, "[[say:second]]\n", "--prompt", "[[say:first]]")
    assert done.stdout == b"first\n> second\n> "


def test_options_of_the_other_text_frontend_are_refused(tmp_path):
    done = piped(tmp_path, "", "--json")
    assert done.returncode == 2
    assert b"--json is for --frontend stdio" in done.stderr
