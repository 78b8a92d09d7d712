import asyncio
import socket
import threading

import pytest
from attrs import define

from lattice_conformance.gate import Gate
from lattice_core.types import Cancelled, GenerationRequest, Limits, Usage
from lattice_openai.disconnect import watch_client


def leave(connection):
    """Close so that the server sees the end at once."""
    connection.close()


def idle_again(served, wait_until):
    wait_until(lambda: served.engine.stats().live_states == 0 and served.engine.stats().running == 0)


@pytest.mark.parametrize(("answered", "gone"), [(False, True), (True, False)])
def test_the_end_of_a_connection_is_a_leaving_only_before_the_answer_is_complete(answered, gone):
    async def watch():
        messages = asyncio.Queue()
        async with watch_client(messages.get) as client:
            called = []
            client.when_gone(lambda: called.append("early"))
            if answered:
                client.answered()
            messages.put_nowait({"type": "http.request"})
            messages.put_nowait({"type": "http.disconnect"})
            others = asyncio.all_tasks() - {asyncio.current_task()}
            await asyncio.wait(others)
            client.when_gone(lambda: called.append("late"))
        return client.gone, called

    assert asyncio.run(watch()) == (gone, ["early", "late"] if gone else [])


@pytest.mark.parametrize("stream", [False, True])
def test_leaving_while_tokens_flow_frees_the_row(serve, wait_until, stream):
    gate = Gate()
    served = serve(gate=gate)
    connection = served.send_chat("[[repeat:3000]]", stream=stream, max_tokens=3000)
    gate.permit(5)
    assert gate.wait_blocked()
    leave(connection)
    # The device stands at the gate; every permit is one more step, and one that sees the cancel is the last.
    wait_until(lambda: gate.permit() or served.engine.stats().cancelled == 1)
    idle_again(served, wait_until)
    [line] = served.telemetry.wait(ev="http_request")
    assert (line["status"], line["stream"]) == (499, stream)
    assert 5 <= line["tokens"] < 3000
    gate.open()
    assert served.chat().status_code == 200


@pytest.mark.parametrize("stream", [False, True])
def test_leaving_while_queued_never_reaches_the_model(serve, wait_until, monkeypatch, stream):
    gate = Gate()
    served = serve(gate=gate, limits=Limits(max_batch=1))
    submit, submitted = served.engine.submit, []
    monkeypatch.setattr(served.engine, "submit", lambda request: submitted.append(submit(request)) or submitted[-1])
    with served.send_chat("[[say:ab]]") as running:
        assert gate.wait_blocked()
        waiting = served.send_chat("never-seen", stream=stream)
        wait_until(lambda: served.engine.stats().queued == 1)
        leave(waiting)
        # The device thread is in a step, so the server must have cancelled before that step ends.
        wait_until(lambda: [generation.cancelled for generation in submitted] == [False, True])
        gate.open()
        assert running.recv(65536).startswith(b"HTTP/1.1 200")
    [line] = served.telemetry.wait(ev="http_request", status=499)
    assert line["tokens"] == 0
    idle_again(served, wait_until)
    assert not served.saw("never-seen")


@pytest.mark.parametrize("stream", [False, True])
def test_leaving_during_prefill_stops_within_the_prefill(serve, wait_until, stream):
    served = serve()
    connection = served.send_chat("[[prefill-delay:100]]" + "x" * 3500, stream=stream)
    wait_until(lambda: served.engine.stats().live_states == 1)
    leave(connection)
    wait_until(lambda: served.engine.stats().cancelled == 1)
    idle_again(served, wait_until)
    assert served.engine.stats().completion_tokens == 0
    [line] = served.telemetry.wait(ev="http_request")
    assert (line["status"], line["tokens"]) == (499, 0)


@pytest.mark.parametrize("stream", [False, True])
def test_leaving_while_the_request_is_submitted_cancels_what_comes_of_it(serve, wait_until, stream):
    engine = SlowEngine()
    served = serve(engine=engine)
    connection = served.send_chat(stream=stream)
    assert engine.submitting.wait(20)
    leave(connection)
    answers_on_another_connection(served)
    engine.proceed.set()
    [line] = served.telemetry.wait(ev="http_request", route="/v1/chat/completions")
    assert line["status"] == 499
    assert [generation.cancelled.is_set() for generation in engine.generations] == [True]


def test_submissions_that_wait_do_not_hold_up_other_routes(serve):
    engine = SlowEngine()
    served = serve(engine=engine)
    connections = [served.send_chat() for _ in range(60)]
    assert engine.submitting.wait(20)
    answers_on_another_connection(served)
    for connection in connections:
        leave(connection)
    answers_on_another_connection(served)
    engine.proceed.set()
    served.telemetry.wait(60, ev="http_request", status=499)
    # Clients that left while they waited for a thread were never submitted.
    assert len(engine.generations) < 60
    assert all(generation.cancelled.is_set() for generation in engine.generations)


def answers_on_another_connection(served):
    """The loop lives, and has seen what happened on other connections before."""
    with served.connect() as other:
        other.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert other.recv(65536).startswith(b"HTTP/1.1 200")


@pytest.mark.slow
def test_a_client_that_does_not_read_pauses_its_row_and_no_other(serve, wait_until):
    served = serve(backend_options={"context": 200_000}, slow_reader_seconds=0.3)
    slow = socket.socket()
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    with slow:
        slow.connect(("127.0.0.1", served.port))
        slow.sendall(served.chat_bytes("[[repeat:150000]]", stream=True, max_tokens=150_000))
        assert served.chat("[[say:ok]]").json()["choices"][0]["message"]["content"] == "ok"
        wait_until(lambda: served.engine.stats().cancelled == 1)
        slow.settimeout(20)
        answer = b""
        while piece := slow.recv(65536):
            answer = (answer + piece)[-2000:]
            if b"data: [DONE]" in answer:
                break
    assert b'"code":"cancelled"' in answer
    assert b"too slow" in answer
    assert served.telemetry.wait(ev="http_request", stream=True)[0]["tokens"] < 150_000


@define
class Health:
    ok = True


class SlowGeneration:
    """Never makes a token; ends when it is cancelled."""

    id = 1
    prompt_tokens = 1

    def __init__(self):
        self.cancelled = threading.Event()

    def cancel(self):
        self.cancelled.set()

    async def __aiter__(self):
        while not self.cancelled.is_set():  # noqa: ASYNC110  # set from any thread, so it is no event of the loop
            await asyncio.sleep(0.005)
        yield Cancelled(Usage(1, 0))


class SlowEngine:
    """An engine whose ``submit`` waits for the test, which the real one cannot be told to."""

    model_id = "slow"

    def __init__(self):
        self.submitting = threading.Event()
        self.proceed = threading.Event()
        self.generations = []

    def submit(self, request: GenerationRequest):
        self.submitting.set()
        assert self.proceed.wait(20)
        self.generations.append(SlowGeneration())
        return self.generations[-1]

    def health(self):
        return Health()

    def on_death(self, callback):
        pass
