import json
import threading
import time

import httpx
import pytest

from lattice_conformance.fakes import RaisingSampler
from lattice_conformance.gate import Gate
from lattice_core.types import Limits


def chunks_of(response):
    return [line.removeprefix("data: ") for line in response.text.split("\n") if line.startswith("data: ")]


def test_a_whole_answer_has_the_documented_shape(shared):
    before = int(time.time())
    response = shared.chat("[[say:héllo]]", model="lattice")
    body = response.json()
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    assert body["id"].startswith("chatcmpl-")
    assert before <= body["created"] <= time.time()
    usage = body["usage"]
    assert usage["completion_tokens"] == len("héllo".encode())
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert body == {
        "id": body["id"],
        "object": "chat.completion",
        "created": body["created"],
        "model": "scripted",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "héllo"}, "finish_reason": "stop"}],
        "usage": usage,
    }


def test_an_empty_answer_still_has_content(shared):
    message = shared.chat("[[say:]]").json()["choices"][0]["message"]
    assert message == {"role": "assistant", "content": ""}


def test_ids_are_unique(shared):
    assert len({shared.chat().json()["id"] for _ in range(5)}) == 5


def test_a_stream_is_role_then_text_then_finish_then_done(shared):
    response = shared.chat("[[say:abé]]", stream=True)
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.headers["cache-control"] == "no-cache"
    assert response.headers["x-accel-buffering"] == "no"
    *chunks, end = chunks_of(response)
    assert end == "[DONE]"
    assert response.text.endswith("data: [DONE]\n\n")
    chunks = [json.loads(chunk) for chunk in chunks]
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    reasons = [chunk["choices"][0]["finish_reason"] for chunk in chunks]
    assert deltas[0] == {"role": "assistant"}
    assert deltas[-1] == {}
    assert all(list(delta) == ["content"] and delta["content"] for delta in deltas[1:-1])
    assert "".join(delta["content"] for delta in deltas[1:-1]) == "abé"
    assert reasons == [None] * (len(chunks) - 1) + ["stop"]
    first = chunks[0]
    assert first["id"].startswith("chatcmpl-")
    for chunk in chunks:
        assert sorted(chunk) == ["choices", "created", "id", "model", "object"]
        assert (chunk["id"], chunk["created"], chunk["model"]) == (first["id"], first["created"], "scripted")
        assert chunk["object"] == "chat.completion.chunk"
        assert chunk["choices"][0]["index"] == 0


def test_usage_comes_last_without_choices_and_only_when_asked_for(shared):
    asked = chunks_of(shared.chat("[[say:abc]]", stream=True, stream_options={"include_usage": True}))
    *before, usage, end = asked
    assert end == "[DONE]"
    usage = json.loads(usage)
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == 3
    assert usage["usage"]["total_tokens"] == usage["usage"]["prompt_tokens"] + 3
    assert not any("usage" in json.loads(chunk) for chunk in before)
    assert json.loads(before[-1])["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_cut_by_max_tokens_says_length(shared, stream):
    response = shared.chat("[[repeat:50]]", max_tokens=4, stream=stream)
    if stream:
        chunks = [json.loads(chunk) for chunk in chunks_of(response)[:-1]]
        text = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)
        reason = chunks[-1]["choices"][0]["finish_reason"]
    else:
        [choice] = response.json()["choices"]
        text, reason = choice["message"]["content"], choice["finish_reason"]
    assert (text, reason) == ("xxxx", "length")


@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_string_over_two_tokens_is_never_shown(shared, stream):
    response = shared.chat("[[say:alpha beta gamma delta]]", stop=["beta gamma"], stream=stream)
    if stream:
        chunks = [json.loads(chunk) for chunk in chunks_of(response)[:-1]]
        text = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)
    else:
        text = response.json()["choices"][0]["message"]["content"]
    assert text == "alpha "


def test_the_role_chunk_does_not_wait_for_the_first_token(serve):
    gate = Gate()
    served = serve(gate=gate)
    body = {"messages": [{"role": "user", "content": "[[hang]]"}], "stream": True}
    with httpx.stream("POST", f"{served.url}/v1/chat/completions", json=body, timeout=20) as response:
        lines = response.iter_lines()
        first = next(lines)
        assert json.loads(first.removeprefix("data: "))["choices"][0]["delta"] == {"role": "assistant"}
        served.backend.release()
        assert "data: [DONE]" in list(lines)


def test_tokens_are_sent_when_they_are_made(serve):
    gate = Gate()
    served = serve(gate=gate)
    body = {"messages": [{"role": "user", "content": "[[say:abc]]"}], "stream": True}
    with httpx.stream("POST", f"{served.url}/v1/chat/completions", json=body, timeout=20) as response:
        lines = (line for line in response.iter_lines() if line)
        next(lines)
        seen = []
        for _ in "abc":
            seen.append(json.loads(next(lines).removeprefix("data: "))["choices"][0]["delta"]["content"])
            assert gate.wait_blocked()
            gate.permit()
        assert seen == ["a", "b", "c"]
        assert list(lines)[-1] == "data: [DONE]"


def test_line_ends_of_unicode_do_not_cut_an_event(shared):
    text = "a\u2028b\u2029c\x85d\re\nf"
    body = {"messages": [{"role": "user", "content": f"[[say:{text}]]"}], "stream": True}
    with httpx.stream("POST", f"{shared.url}/v1/chat/completions", json=body) as response:
        lines = [line.removeprefix("data: ") for line in response.iter_lines() if line]
    deltas = [json.loads(line)["choices"][0]["delta"].get("content", "") for line in lines[:-1]]
    assert "".join(deltas) == text


def test_a_silent_stream_sends_comments_that_are_no_events(serve):
    served = serve(keepalive=0.05)
    connection = served.send_chat("[[hang]]", stream=True)
    with connection:
        data = b""
        while data.count(b": keep-alive\n") < 3:
            piece = connection.recv(65536)
            assert piece
            data += piece
        served.backend.release()
        while b"data: [DONE]\n\n" not in data:
            piece = connection.recv(65536)
            assert piece
            data += piece
    body = b"".join(data.split(b"\r\n\r\n", 1)[1].split(b"\r\n")[1::2])
    events = body.decode().split("\n\n")
    # One empty line after every event and none after a comment, so nothing dispatches an empty event.
    assert events[-1] == ""
    assert all("data: " in event for event in events[:-1])
    assert ": keep-alive\n\n" not in body.decode()


def test_keep_alive_can_be_switched_off(serve):
    served = serve(keepalive=0)
    text = served.chat("[[say:abc]][[delay:50]]", stream=True).text
    assert ":" not in {line[:1] for line in text.split("\n")}


def test_a_failure_before_the_first_token_is_a_500_without_its_cause(served, caplog):
    response = served.chat("[[fail-prefill]]")
    error = response.json()["error"]
    assert (response.status_code, error["type"], error["code"]) == (500, "server_error", "step_failed")
    assert "scripted failure" not in response.text
    [logged] = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert logged.startswith("a model step failed: ScriptedFailureError: scripted failure")
    assert served.chat().status_code == 200
    [line] = served.telemetry.wait(ev="http_request", status=500)
    assert line["tokens"] is None


def test_a_sampler_that_raises_fails_its_request_and_not_the_server(serve):
    served = serve(sampler=lambda: RaisingSampler(at=2))
    error = served.chat("[[say:abcdef]]").json()["error"]
    assert (error["type"], error["code"]) == ("server_error", "sampler_failed")
    assert served.chat("[[say:a]]").status_code == 200


def test_a_failure_in_mid_stream_is_an_error_event_and_done(served):
    *chunks, error, end = chunks_of(served.chat("[[say:abcdef]][[fail:3]]", stream=True))
    assert end == "[DONE]"
    assert json.loads(error)["error"]["type"] == "server_error"
    assert "scripted failure" not in error
    chunks = [json.loads(chunk)["choices"][0] for chunk in chunks]
    assert "".join(chunk["delta"].get("content", "") for chunk in chunks) == "abc"
    assert not any(chunk["finish_reason"] for chunk in chunks)
    [line] = served.telemetry.wait(ev="http_request", stream=True)
    assert (line["status"], line["tokens"]) == (200, 3)


def test_a_stream_that_fails_in_prefill_keeps_the_rule(shared):
    role, error, end = chunks_of(shared.chat("[[fail-prefill]]", stream=True))
    assert json.loads(role)["choices"][0]["delta"] == {"role": "assistant"}
    assert json.loads(error)["error"]["code"] == "step_failed"
    assert end == "[DONE]"


def test_a_constraint_that_blocks_everything_is_an_error(shared):
    error = shared.chat(response_format={"type": "scripted-blocks"}).json()["error"]
    assert (error["type"], error["code"]) == ("server_error", "blocked_constraint")


def test_a_grammar_of_a_plugin_is_reached_through_response_format(shared):
    response = shared.chat(
        "[[say:hello]]", response_format={"type": "scripted-alphabet", "scripted-alphabet": "xyz"}, max_tokens=4
    )
    assert set(response.json()["choices"][0]["message"]["content"]) <= set("xyz")


def test_the_cause_of_an_error_that_the_engine_does_not_log_is_logged(serve, caplog):
    served = serve(sampler=lambda: RaisingSampler(at=0))
    assert served.chat("[[say:abc]]").status_code == 500
    [logged] = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert logged.startswith("sampler_failed: ")
    assert "scripted failure of the sampler" in logged


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("body", "status", "code", "param"),
    [
        ({"response_format": {"type": "xml"}}, 400, "unsupported_feature", "response_format"),
        (
            {"response_format": {"type": "scripted-alphabet", "scripted-alphabet": 5}},
            400,
            "invalid_request",
            "response_format",
        ),
        ({"model": "gpt-4o"}, 404, "model_not_found", "model"),
        ({"temperature": 3}, 400, "invalid_temperature", "temperature"),
        ({"tools": [{}]}, 400, "unsupported_feature", "tools"),
    ],
)
def test_what_can_be_known_is_refused_before_status_200(shared, stream, body, status, code, param):
    response = shared.chat("never-seen", stream=stream, **body)
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["param"]) == (status, code, param)
    assert not shared.saw("never-seen")


@pytest.mark.parametrize("stream", [False, True])
def test_a_prompt_beyond_the_context_is_a_400_with_both_numbers(serve, stream):
    served = serve(limits=Limits(context=100))
    response = served.chat("x" * 200, stream=stream)
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (400, "context_length_exceeded")
    assert "100" in error["message"]
    assert "2" in error["message"]


def test_max_tokens_beyond_the_context_is_cut_to_it(serve):
    served = serve(limits=Limits(context=100))
    body = served.chat("[[repeat:2000]]", max_tokens=2**31 - 1).json()
    assert body["choices"][0]["finish_reason"] == "length"
    assert body["usage"]["total_tokens"] == 100


@pytest.mark.parametrize("stream", [False, True])
def test_a_full_queue_is_a_503_that_says_when_to_try_again(serve, stream):
    gate = Gate()
    served = serve(gate=gate, max_queue=1, limits=Limits(max_batch=1))
    running = served.send_chat("[[say:ab]]")
    assert gate.wait_blocked()
    waiting = served.send_chat("[[say:ab]]")
    deadline = time.monotonic() + 20
    while served.engine.stats().queued < 1:
        assert time.monotonic() < deadline
    response = served.chat(stream=stream)
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["type"]) == (503, "server_busy", "server_error")
    assert int(response.headers["retry-after"]) >= 1
    gate.open()
    for connection in (running, waiting):
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")
        connection.close()
    assert served.chat().status_code == 200


def test_requests_at_the_same_time_do_not_mix(shared):
    answers = {}

    def ask(name):
        content = f"[[say:{name * 20}]]"
        if name in "ac":
            answers[name] = shared.chat(content).json()["choices"][0]["message"]["content"]
        else:
            chunks = [json.loads(chunk) for chunk in chunks_of(shared.chat(content, stream=True))[:-1]]
            answers[name] = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)

    threads = [threading.Thread(target=ask, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {name: name * 20 for name in "abcd"}


def test_unknown_fields_are_named_in_the_log_without_control_characters(shared, caplog):
    caplog.set_level("INFO", logger="lattice")
    response = shared.chat(**{"wibble": 1, "evil\x1b[31m\n": 2})
    assert response.status_code == 200
    [message] = [record.getMessage() for record in caplog.records if "wibble" in record.getMessage()]
    assert message.isprintable()
