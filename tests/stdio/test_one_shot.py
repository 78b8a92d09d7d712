from __future__ import annotations

import os
import re

import pytest

from lattice_conformance.gate import Gate
from lattice_conformance.harness import scripted_engine
from lattice_conformance.scripted_backend import ScriptedBackend
from lattice_core.errors import UsageError
from lattice_stdio.frontend import StdioFrontend
from tests.stdio.running import settings


def output_of(running) -> bytes:
    text = b""
    while (line := running.lines.read()) is not None:
        text += line + b"\n"
    return text


def test_json_with_a_prompt_gives_the_events_of_one_request_and_no_ready_line(start):
    running = start(json=True, prompt="[[say:hi]]")
    events = running.lines.answer()
    assert [event.get("token") for event in events] == ["h", "i", ""]
    assert events[-1]["prompt_tokens"] == len("[[say:hi]]")
    assert running.lines.event() is None
    assert running.wait() == 0


def test_json_with_a_prompt_takes_it_raw(start):
    running = start(json=True, prompt="<|im_start|>")
    assert running.lines.answer()[-1]["prompt_tokens"] == 1


def test_a_prompt_alone_is_a_message_answered_as_plain_text(start, logged):
    running = start(prompt="[[say:héllo\nthere]]")
    assert output_of(running) == "héllo\nthere\n".encode()
    assert running.wait() == 0
    [line] = logged
    # `<|im_start|>user\n...<|im_end|>\n<|im_start|>assistant\n` around the 20 bytes of the message
    assert re.fullmatch(r"script: 39 prompt \+ 12 gen in \d+ms = \d+\.\d tok/s", line)


def test_plain_text_is_written_while_it_is_made(start):
    gate = Gate()
    running = start(gate, prompt="[[say:a\nb]]")
    gate.permit()
    assert running.lines.read() == b"a"
    gate.open()
    assert running.lines.read() == b"b"
    assert running.wait() == 0


def test_plain_text_to_a_pipe_is_as_the_model_wrote_it(start):
    running = start(prompt="[[say:\x1b[31mred\x07]]")
    assert output_of(running) == b"\x1b[31mred\x07\n"


def test_a_failed_answer_is_an_exit_status_of_one_and_one_line_with_the_cause(start, logged):
    running = start(prompt="[[say:abc]][[fail:1]]")
    assert output_of(running) == b"a\n"
    assert running.wait() == 1
    [line] = logged
    assert line.startswith("a model step failed: ScriptedFailureError: scripted failure at reply token 1")

    running = start(json=True, prompt="[[fail:0]]")
    assert running.lines.answer()[-1]["msg"].startswith("generation failed: ")
    assert running.wait() == 1


def test_a_refused_prompt_is_an_exit_status_of_one(start, logged):
    running = start(prompt="x" * 5000)
    assert output_of(running) == b""
    assert running.wait() == 1
    assert "4096" in logged[-1]


@pytest.mark.parametrize("json", [True, False])
def test_an_answer_that_was_cut_by_a_signal_is_no_success(start, json):
    gate = Gate()
    running = start(gate, json=json, prompt="[[say:\n]][[repeat:500]]")
    running.lines.read()
    running.stop.set()
    gate.open()
    assert running.wait() == 1


@pytest.mark.parametrize("json", [True, False])
def test_a_closed_output_is_no_success(start, json):
    gate = Gate()
    running = start(gate, json=json, prompt="[[say:\n]][[repeat:500]]")
    running.lines.read()
    running.close_output()
    gate.open()
    assert running.wait() == 1
    assert running.engine.stats().cancelled <= 1


def test_an_engine_that_is_dead_has_its_own_exit_status(start):
    with scripted_engine(backend=ScriptedBackend(fail="steps")) as engine:
        statuses = [start(engine=engine, prompt="x").wait() for _ in range(4)]
    assert statuses[0] == 1
    assert statuses[-1] == 5


def test_a_prompt_of_a_dash_is_read_from_stdin(start):
    running = start(prompt="-")
    os.write(running._stdin, b"[[say:from stdin]]\n")
    running.end_input()
    assert output_of(running) == b"from stdin\n"
    assert running.wait() == 0


def test_the_wait_for_a_prompt_on_stdin_ends_with_the_stop_signal(start):
    running = start(prompt="-", json=True)
    running.stop.set()
    assert running.wait() == 1


@pytest.mark.parametrize(
    ("core", "said"),
    [
        ({"json": True}, "--json mode requires --prompt (or --serve for persistent serve mode)"),
        ({"serve": True}, "--serve needs --json"),
        ({"serve": True, "json": True, "prompt": "x"}, "leave out --prompt or --serve"),
        ({}, "there is no prompt"),
    ],
)
def test_options_that_ask_for_nothing_or_too_much_are_refused_before_a_model_is_loaded(core, said):
    with pytest.raises(UsageError, match=re.escape(said)):
        StdioFrontend(settings(**core))
