import json
import os
import signal
import socket

import httpx
import pytest


def chat(process, content="hi", **body):
    body = {"messages": [{"role": "user", "content": content}], **body}
    return httpx.post(f"{process.url}/v1/chat/completions", json=body, timeout=20)


def test_start_serve_and_stop_as_documented(start_process):
    process = start_process("--port", "0")
    assert process.telemetry.events[:1] in ([], [{"ev": "ready", "port": process.port}])
    assert chat(process, "[[say:hello]]").json()["choices"][0]["message"]["content"] == "hello"
    process.terminate()
    assert process.wait() == 0
    base = f"http://127.0.0.1:{process.port}"
    assert f"[lattice] OpenAI-compatible API on {base}/v1\n" in process.stderr
    assert "[lattice]   POST /v1/chat/completions   GET /v1/models   GET /health\n" in process.stderr
    assert [event["ev"] for event in process.telemetry.events] == ["ready", "http_request"]
    assert "Traceback" not in process.stderr


def test_sigint_ends_with_status_0_while_a_stream_is_open(start_process):
    process = start_process("--port", "0", "--drain-seconds", "0.2")
    body = {"messages": [{"role": "user", "content": "[[repeat:3000]][[delay:20]]"}], "stream": True, "max_tokens": 3000}
    with httpx.stream("POST", f"{process.url}/v1/chat/completions", json=body, timeout=20) as response:
        lines = (line for line in response.iter_lines() if line)
        next(lines)
        process.popen.send_signal(signal.SIGINT)
        *_, error, end = lines
    assert json.loads(error.removeprefix("data: "))["error"]["code"] == "shutting_down"
    assert end == "data: [DONE]"
    assert process.wait() == 0
    assert "Traceback" not in process.stderr


def test_a_second_server_on_the_port_ends_with_status_1_and_one_line(start_process):
    first = start_process("--port", "0")
    second = start_process("--port", str(first.port))
    assert second.wait() == 1
    assert f"bind 127.0.0.1:{first.port} failed: Address already in use" in second.stderr
    assert "Traceback" not in second.stderr
    assert "loading model" not in second.stderr
    assert second.telemetry.events == []
    assert httpx.get(f"{first.url}/health").text == "ok"


def test_a_dead_engine_ends_the_process_with_status_5(start_process):
    process = start_process("--port", "0", "--scripted-fail", "steps", "--openai-linger", "0.5")
    statuses = [chat(process).status_code for _ in range(3)]
    assert set(statuses) <= {500, 503}
    assert httpx.get(f"{process.url}/health").status_code == 503
    assert process.wait() == 5


def test_template_options_reach_the_chat_format_which_refuses_one_that_it_does_not_read(start_process):
    process = start_process("--port", "0")
    assert chat(process, chat_template_kwargs={"wibble": None}).status_code == 200
    response = chat(process, chat_template_kwargs={"wibble": 1})
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (400, "unsupported_feature")
    assert "wibble" in error["message"]


def test_a_closed_standard_output_does_not_end_the_server(start_process):
    process = start_process("--port", "0")
    port = process.port
    # Our end of the pipe goes away; the reader thread must not hold another.
    os.dup2(os.open(os.devnull, os.O_RDONLY), process.popen.stdout.fileno())
    for _ in range(3):
        assert httpx.get(f"http://127.0.0.1:{port}/health").text == "ok"
    process.terminate()
    assert process.popen.wait(20) == 0


def test_the_server_listens_on_ipv6(start_process):
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")
    process = start_process("--port", "0", "--host", "::1")
    assert httpx.get(f"http://[::1]:{process.port}/health").text == "ok"
    process.terminate()
    assert process.wait() == 0
    assert f"API on http://[::1]:{process.port}/v1" in process.stderr


def test_an_open_address_without_a_key_is_warned_about(start_process):
    process = start_process("--port", "0", "--host", "0.0.0.0")
    assert httpx.get(f"{process.url}/health", headers={"host": "any.example"}).text == "ok"
    process.terminate()
    assert process.wait() == 0
    assert "warning: everyone who reaches http://0.0.0.0" in process.stderr


def test_an_open_address_with_a_key_is_not_warned_about(start_process):
    process = start_process("--port", "0", "--host", "0.0.0.0", env={"LATTICE_OPENAI_API_KEY": "sesame"})
    assert httpx.get(f"{process.url}/v1/models").status_code == 401
    process.terminate()
    assert process.wait() == 0
    assert "warning: everyone" not in process.stderr
    assert "sesame" not in process.stderr


def test_a_bad_origin_is_a_usage_error(start_process):
    process = start_process("--openai-cors-origin", "example.com")
    assert process.wait() == 2
    assert "--openai-cors-origin example.com: not an origin" in process.stderr
