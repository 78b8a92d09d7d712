from __future__ import annotations

import json
import os
import threading

import pytest

from lattice_conformance.fakes import GreedySampler
from lattice_conformance.gate import Gate
from lattice_conformance.harness import scripted_engine
from lattice_conformance.scripted_backend import ScriptedBackend
from lattice_core.types import GenerationRequest
from tests.stdio.running import eventually


def text_of(events):
    return "".join(event["token"] for event in events if event["ev"] == "gen_token")


def test_an_answer_is_its_tokens_and_then_the_figures(serving):
    *tokens, done = serving().ask({"prompt": "[[say:hi]]"})
    assert tokens == [
        {"ev": "gen_token", "token": "h", "done": False, "token_id": ord("h")},
        {"ev": "gen_token", "token": "i", "done": False, "token_id": ord("i")},
    ]
    assert list(done) == [
        *("ev", "token", "done", "tok_s", "ttft_ms", "prompt_tokens", "gen_tokens", "total_ms", "finish_reason"),
    ]
    assert (done["token"], done["done"], done["finish_reason"]) == ("", True, "stop")
    assert (done["prompt_tokens"], done["gen_tokens"]) == (len("[[say:hi]]"), 2)
    assert isinstance(done["total_ms"], int)
    assert done["tok_s"] > 0
    assert 0 < done["ttft_ms"] <= done["total_ms"] + 1


def test_text_of_several_tokens_names_them_all(serving):
    *tokens, done = serving().ask({"prompt": "[[say:a日]]"})
    assert [event.get("token_ids", [event.get("token_id")]) for event in tokens] == [[97], list("日".encode())]
    assert (text_of(tokens), done["gen_tokens"]) == ("a日", 4)


def test_an_answer_without_a_token_still_ends_with_the_figures(serving):
    [done] = serving().ask({"prompt": "[[repeat:0]]"})
    assert (done["gen_tokens"], done["ttft_ms"], done["tok_s"], done["finish_reason"]) == (0, 0.0, 0.0, "stop")


def test_lines_are_compact_json_with_raw_characters(serving):
    running = serving()
    running.send({"prompt": '[[say:"é\\\u2028]]'})
    lines = []
    while not lines or b'"done":true' not in lines[-1]:
        lines.append(running.lines.read())
    assert lines[0] == b'@@lattice {"ev":"gen_token","token":"\\"","done":false,"token_id":34}'
    # A character of several tokens comes at once, with the ids of all of them.
    assert lines[1] == '@@lattice {"ev":"gen_token","token":"é","done":false,"token_ids":[195,169]}'.encode()
    assert lines[2] == b'@@lattice {"ev":"gen_token","token":"\\\\","done":false,"token_id":92}'
    assert lines[3] == '@@lattice {"ev":"gen_token","token":"\u2028","done":false,"token_ids":[226,128,168]}'.encode()


def test_tokens_are_written_while_the_answer_is_made(serving):
    gate = Gate()
    running = serving(gate)
    running.send({"prompt": "[[say:abc]]"})
    assert running.lines.event()["token"] == "a"
    gate.permit()
    assert running.lines.event()["token"] == "b"
    gate.open()
    assert text_of(running.lines.answer()) == "c"


def test_requests_are_answered_in_order_one_at_a_time(serving):
    running = serving()
    for number in range(5):
        running.send({"prompt": f"[[say:{number}]]", "id": number})
    answers = [running.lines.answer() for _ in range(5)]
    assert [text_of(answer) for answer in answers] == list("01234")
    assert [{event["id"] for event in answer} for answer in answers] == [{number} for number in range(5)]


@pytest.mark.parametrize("name", ["a", 0, 2.5, "\u2028é"])
def test_a_requests_id_is_in_all_its_events(serving, name):
    running = serving()
    assert {event["id"] for event in running.ask({"prompt": "[[say:ab]]", "id": name})} == {name}
    [error] = running.ask({"prompt": "x", "id": name, "top_k": -1})
    assert error["id"] == name


def test_messages_are_rendered_and_a_prompt_is_not(serving):
    running = serving()
    rendered = "<|im_start|>user\n[[say:hi]]<|im_end|>\n<|im_start|>assistant\n"
    chat = running.ask({"messages": [{"role": "user", "content": "[[say:hi]]"}]})[-1]
    raw = running.ask({"prompt": rendered})[-1]
    # The control tokens of a raw prompt are one token each.
    assert chat["prompt_tokens"] == raw["prompt_tokens"] < len(rendered)


def test_a_message_of_text_parts_is_their_text(serving):
    parts = [{"type": "text", "text": "[[say:"}, {"type": "text", "text": "hi]]"}]
    assert text_of(serving().ask({"messages": [{"role": "user", "content": parts}]})) == "hi"


def test_max_tokens_and_stop_strings_end_an_answer(serving):
    running = serving()
    events = running.ask({"prompt": "[[repeat:9]]", "max_tokens": 4})
    assert (text_of(events), events[-1]["finish_reason"], events[-1]["gen_tokens"]) == ("xxxx", "length", 4)
    events = running.ask({"prompt": "[[say:one two]]", "stop": "e t"})
    assert (text_of(events), events[-1]["finish_reason"]) == ("on", "stop")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"{", "malformed request: "),
        (b'{"prompt": "a" "b"}', "malformed request: "),
        (b'{"prompt": NaN}', "malformed request: NaN is no JSON number"),
        (b'{"temperature": 1e999, "prompt": "x"}', "malformed request: the number 1e999 is out of range"),
        (b'{"prompt": "a", "prompt": "b"}', 'malformed request: the key "prompt" stands twice in one object'),
        (b'{"prompt": "\xff"}', "malformed request: it is not UTF-8 at byte 12"),
        (b"[" * 100_000, "malformed request: it is nested too deeply"),
        (b'{"prompt": "\\ud800"}', "malformed request: a string holds half of a surrogate pair"),
        (b'{"seed": ' + b"9" * 5000 + b"}", "malformed request: "),
        (b"{}", 'missing "prompt" field'),
        (b'{"prompt": null}', 'missing "prompt" field'),
        (b"5", 'missing "prompt" field'),
        (b'["prompt"]', 'missing "prompt" field'),
        (b'{"prompt": 5}', 'missing "prompt" field: `prompt` must be a string, not an integer: 5'),
        (b'{"prompt": ""}', "generation failed: the prompt is empty"),
        (b'{"prompt": "x", "model": "other"}', "generation failed: the model 'other' is not served here"),
        (b'{"prompt": "x", "response_format": {"type": "absent"}}', "generation failed: no grammar plugin is named 'absent'"),
    ],
)
def test_a_line_that_cannot_be_answered_is_one_error_and_the_loop_goes_on(serving, line, said):
    running = serving()
    [error] = running.ask(line)
    assert error["ev"] == "error"
    assert error["msg"].startswith(said)
    assert text_of(running.ask({"prompt": "[[say:next]]"})) == "next"


def test_blank_lines_are_skipped_and_line_ends_of_all_systems_taken(serving):
    running = serving()
    for line in (b"", b"  \t", b"\r"):
        running.send(line)
    assert text_of(running.ask(b'{"prompt":"[[say:a]]"}\r')) == "a"


def test_a_byte_order_mark_before_the_first_line_is_no_error(serving):
    assert text_of(serving().ask(b'\xef\xbb\xbf{"prompt":"[[say:a]]"}')) == "a"


def test_a_prompt_beyond_the_context_is_an_error_with_both_numbers(serving):
    [error] = serving(config={}).ask({"prompt": "x" * 5000})
    assert error["code"] == "context_length_exceeded"
    assert "5000" in error["msg"]
    assert "4096" in error["msg"]


@pytest.mark.parametrize("prompt", ["[[fail-prefill]]", "[[fail:0]]", "[[fail:2]]"])
def test_a_failure_is_an_error_without_figures_and_the_loop_goes_on(serving, prompt):
    running = serving()
    events = running.ask({"prompt": f"[[say:abc]]{prompt}"})
    assert events[-1]["ev"] == "error"
    assert events[-1]["msg"].startswith("generation failed: ")
    assert not any(event.get("done") for event in events)
    assert text_of(running.ask({"prompt": "[[say:next]]"})) == "next"


def test_a_line_above_the_limit_is_an_error_and_the_next_one_is_answered(serving):
    running = serving()
    line = b'{"prompt":"' + b"x" * (16 * 1024 * 1024) + b'"}\n{"prompt":"[[say:after]]"}\n'
    # Such a line does not fit into the pipe: it is written while the frontend reads.
    writer = threading.Thread(
        target=lambda: [os.write(running._stdin, line[at : at + 65536]) for at in range(0, len(line), 65536)]
    )
    writer.start()
    [error] = running.lines.answer()
    writer.join()
    assert error["msg"] == "malformed request: it is longer than 16777216 bytes"
    assert text_of(running.lines.answer()) == "after"


def test_the_end_of_the_input_ends_the_loop(serving):
    running = serving()
    running.end_input()
    assert running.lines.event() is None
    assert running.wait() == 0


def test_a_last_line_without_a_line_break_is_answered(serving):
    running = serving()
    os.write(running._stdin, b'{"prompt":"[[say:a]]"}')
    running.end_input()
    assert text_of(running.lines.answer()) == "a"
    assert running.wait() == 0


def test_a_request_that_runs_at_the_end_of_the_input_finishes(serving):
    gate = Gate()
    running = serving(gate)
    running.send({"prompt": "[[say:abc]]"})
    running.end_input()
    assert running.lines.event()["token"] == "a"
    gate.open()
    assert text_of(running.lines.answer()) == "bc"
    assert running.wait() == 0


def test_the_stop_signal_ends_a_wait_for_the_next_line(serving):
    running = serving()
    running.stop.set()
    assert running.wait() == 0


def test_the_stop_signal_cancels_the_running_request_and_leaves_the_rest_unread(serving):
    gate = Gate()
    running = serving(gate)
    running.send({"prompt": "[[repeat:500]]", "id": 1})
    running.send({"prompt": "[[say:never]]", "id": 2})
    assert running.lines.event()["token"] == "x"
    running.stop.set()
    gate.open()
    [*_, last] = running.lines.answer()
    assert (last["ev"], last["code"], last["id"]) == ("error", "cancelled", 1)
    assert running.wait() == 0
    assert running.lines.event() is None
    assert running.engine.stats().live_states == 0


def test_a_closed_output_cancels_the_generation_and_ends_the_loop_with_success(serving):
    gate = Gate()
    running = serving(gate)
    running.send({"prompt": "[[repeat:500]]"})
    assert running.lines.event()["token"] == "x"
    running.close_output()
    gate.open()
    assert running.wait() == 0
    eventually(lambda: running.engine.stats().live_states == 0)
    assert running.engine.stats().cancelled == 1


def test_a_reader_that_does_not_read_holds_the_loop_but_not_the_stop_signal(serving):
    running = serving()
    running.send({"prompt": "[[repeat:3000]]", "max_tokens": 3000})
    assert running.lines.event()["token"] == "x"
    # 3,000 lines are more than a pipe holds, and nobody reads them.
    running.stop.set()
    assert running.wait() == 0


def test_an_output_that_does_not_block_is_waited_for(serving):
    running = serving()
    os.set_blocking(running.frontend._stdout, False)
    assert text_of(running.ask({"prompt": "[[repeat:3000]]", "max_tokens": 3000})) == "x" * 3000


def test_an_engine_that_dies_under_a_request_is_an_error_and_its_own_exit_status(start):
    with scripted_engine(backend=ScriptedBackend(fail="steps")) as engine:
        running = start(engine=engine, json=True, serve=True)
        assert running.lines.event() == {"ev": "ready"}
        for _ in range(4):
            running.send({"prompt": "x"})
        codes = []
        while (event := running.lines.event()) is not None:
            codes.append(event["code"])
        assert codes == ["step_failed"] * 3 + ["engine_died"]
        assert running.wait() == 5


def test_an_engine_that_dies_while_the_loop_waits_ends_it(start):
    with scripted_engine(backend=ScriptedBackend(fail="steps")) as engine:
        running = start(engine=engine, json=True, serve=True)
        assert running.lines.event() == {"ev": "ready"}
        for _ in range(3):
            list(engine.submit(GenerationRequest(prompt="x")))
        assert running.lines.event()["code"] == "engine_died"
        assert running.wait() == 5


def test_a_grammar_is_asked_for_with_response_format(serving):
    running = serving()
    events = running.ask({"prompt": "[[say:ab]]", "response_format": {"type": "scripted-blocks"}})
    assert events[-1]["code"] == "blocked_constraint"


def test_defaults_of_the_command_line_are_those_of_requests_without_their_own(start):
    seen = []

    class Recording(GreedySampler):
        def new_state(self, params, prompt, vocab_size):
            seen.append(params)
            return super().new_state(params, prompt, vocab_size)

    with scripted_engine(sampler=Recording) as engine:
        core = {"max_tokens": 3, "temperature": 0.25, "top_k": 7, "top_p": 0.75, "repetition_penalty": 1.5, "seed": 11}
        running = start(engine=engine, json=True, serve=True, **core)
        running.lines.event()
        assert running.ask({"prompt": "[[repeat:9]]"})[-1]["gen_tokens"] == 3
        own = {"max_tokens": 5, "temperature": 0, "top_k": 0, "top_p": 1, "repetition_penalty": 1, "seed": 12}
        assert running.ask({"prompt": "[[repeat:9]]"} | own)[-1]["gen_tokens"] == 5
    first, second = seen
    assert (first.temperature, first.top_k, first.top_p, first.repetition_penalty, first.seed) == (0.25, 7, 0.75, 1.5, 11)
    assert (second.temperature, second.top_k, second.top_p, second.repetition_penalty, second.seed) == (0, 0, 1, 1, 12)


def test_events_are_valid_json_whatever_the_text_holds(serving):
    text = "".join(map(chr, [*range(1, 0x20), 0x7F, 0x85, 0xFFFE]))
    running = serving()
    running.send({"prompt": f"[[say:{text}]]"})
    raw = []
    while not raw or b'"done":true' not in raw[-1]:
        raw.append(running.lines.read())
    tokens = [json.loads(line.removeprefix(b"@@lattice "))["token"] for line in raw]
    assert "".join(tokens) == text
