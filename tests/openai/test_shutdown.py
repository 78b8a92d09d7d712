import json

import httpx
import pytest

from lattice_conformance.gate import Gate
from lattice_core.errors import ExitCode, LatticeError


def read_all(connection):
    data = b""
    while piece := connection.recv(65536):
        data += piece
    return data


def refused(served):
    try:
        served.connect().close()
    except (ConnectionRefusedError, ConnectionResetError):
        return True
    return False


def test_a_stop_lets_a_running_stream_finish(serve, wait_until):
    gate = Gate()
    served = serve(gate=gate)
    with served.send_chat("[[say:abc]]", stream=True) as connection:
        assert gate.wait_blocked()
        served.stop.set()
        wait_until(lambda: refused(served))
        gate.open()
        answer = read_all(connection)
    assert b'"finish_reason":"stop"' in answer
    assert b"data: [DONE]" in answer
    assert served.result() == ExitCode.OK


@pytest.mark.parametrize("stream", [False, True])
def test_what_runs_longer_than_the_drain_is_cancelled_with_a_word(serve, stream):
    served = serve(core={"drain-seconds": 0.1})
    with served.send_chat("[[repeat:3000]][[delay:20]]", stream=stream, max_tokens=3000) as connection:
        start = connection.recv(10) if stream else b""
        served.stop.set()
        answer = start + read_all(connection)
    assert b'"code":"shutting_down"' in answer
    if stream:
        assert answer.startswith(b"HTTP/1.1 200")
        assert b"data: [DONE]" in answer
        assert b'"finish_reason":"' not in answer
    else:
        assert answer.startswith(b"HTTP/1.1 503")
    assert served.result() == ExitCode.OK


def test_an_open_idle_connection_does_not_hold_up_the_end(serve):
    served = serve(core={"drain-seconds": 30.0})
    with httpx.Client(base_url=served.url) as client, served.connect() as silent, served.connect() as half:
        assert client.get("/health").status_code == 200
        half.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost: local")
        served.stop.set()
        assert served.result() == ExitCode.OK
        assert silent.recv(10) == b""


def test_a_half_sent_body_is_dropped_after_the_drain(serve):
    served = serve(core={"drain-seconds": 0.1})
    with served.connect() as half:
        half.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            b"content-length: 50\r\n\r\n{"
        )
        served.stop.set()
        assert served.result() == ExitCode.OK


def test_a_model_step_that_hangs_does_not_hold_up_the_end(serve):
    served = serve(core={"drain-seconds": 0.1})
    with served.send_chat("[[hang]]", stream=True) as connection:
        assert connection.recv(10)
        served.stop.set()
        assert served.result() == ExitCode.OK
    [line] = served.telemetry.wait(ev="http_request")
    assert line["tokens"] == 0


def test_a_stop_before_the_start_ends_at_once(serve):
    served = serve()
    served.stop.set()
    assert served.result() == ExitCode.OK
    served.stop.set()


def test_the_death_of_the_engine_is_seen_and_then_ends_the_server(serve):
    served = serve(backend_options={"fail": "steps"}, linger=30.0)
    answers = [served.chat() for _ in range(3)]
    assert {answer.status_code for answer in answers} <= {500, 503}
    health = httpx.get(f"{served.url}/health")
    assert health.status_code == 503
    assert health.text.startswith("dead: ")
    refused = served.chat()
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "engine_died")
    served.stop.set()
    assert served.result() == ExitCode.ENGINE_DIED


def test_after_the_linger_a_dead_engine_ends_the_server(serve):
    served = serve(backend_options={"fail": "steps"}, linger=0.1)
    for _ in range(3):
        served.chat()
    assert served.result() == ExitCode.ENGINE_DIED


def test_a_stream_that_runs_when_the_engine_dies_gets_its_error(serve):
    served = serve(backend_options={"fail": "steps"}, linger=30.0)
    texts = [served.chat(stream=True).text for _ in range(3)]
    for text in texts:
        error, end = [line.removeprefix("data: ") for line in text.split("\n") if line.startswith("data: ")][-2:]
        assert json.loads(error)["error"]["type"] == "server_error"
        assert end == "[DONE]"


def test_a_port_that_is_taken_is_one_clear_error(serve, frontend_on):
    taken = serve()
    with pytest.raises(LatticeError, match=rf"bind 127\.0\.0\.1:{taken.port} failed: Address already in use"):
        frontend_on(taken.port).serve(taken.engine, taken.stop)


def test_a_host_that_does_not_exist_is_one_clear_error(served, frontend_on):
    with pytest.raises(LatticeError, match=r"bind no-such-host\.invalid:0 failed: "):
        frontend_on(0, "no-such-host.invalid").serve(served.engine, served.stop)
