import asyncio
import json

import httpx
import pytest

from lattice_openai.errors import ApiError
from lattice_openai.request_body import read_json_object

GOOD = json.dumps({"messages": [{"role": "user", "content": "[[say:ok]]"}]}).encode()


def post(served, content, **headers):
    sent = {"content-type": "application/json"} | {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.post(f"{served.url}/v1/chat/completions", content=content, headers=sent, timeout=20)


def status_and_error(answer):
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)["error"]


@pytest.mark.parametrize(
    "kind",
    [
        "application/json",
        "application/json; charset=utf-8",
        "Application/JSON;charset=UTF-8",
        "application/vnd.api+json",
        'application/json; charset="utf-8"',
    ],
)
def test_json_media_types_are_accepted(shared, kind):
    assert post(shared, GOOD, content_type=kind).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"content_type": "text/plain"},
        {"content_type": "application/x-www-form-urlencoded"},
        {"content_type": "application/jsonx"},
        {"content_type": "text/x+json"},
        {"content_type": ""},
        {"content_type": "application/json; charset=latin-1"},
        {"content_encoding": "gzip"},
    ],
)
def test_other_media_types_are_a_415_before_parsing(shared, headers):
    response = post(shared, b"{ not json", **headers)
    assert (response.status_code, response.json()["error"]["code"]) == (415, "unsupported_media_type")


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b'"x"', b'{"messages":[],"messages":[]}', b'{"temperature":NaN}', b'{"a":"\xff"}', b"[" * 50_000],
)
def test_what_is_no_json_object_is_a_400_in_the_envelope(shared, content):
    response = post(shared, content)
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["type"]) == (400, "invalid_request_body", "invalid_request_error")


def test_a_body_at_the_limit_passes_and_one_byte_more_is_a_413(serve):
    served = serve(max_body=2048)
    assert post(served, GOOD.ljust(2048)).status_code == 200
    response = post(served, GOOD.ljust(2049))
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (413, "request_body_too_large")
    assert "2048" in error["message"]


def test_the_size_limit_is_1_mib_by_default(shared):
    assert post(shared, GOOD.ljust(1024 * 1024)).status_code == 200
    assert post(shared, GOOD.ljust(1024 * 1024 + 1)).status_code == 413


def test_a_large_announced_body_is_refused_before_it_is_sent(shared):
    with shared.connect() as connection:
        connection.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            b"content-length: 99999999\r\nexpect: 100-continue\r\n\r\n"
        )
        answer = connection.recv(65536)
        assert answer.startswith(b"HTTP/1.1 413")


def test_a_chunked_body_is_refused_at_the_limit_and_its_sender_gets_the_answer(serve):
    served = serve(max_body=4096)
    with served.connect() as connection:
        connection.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            b"transfer-encoding: chunked\r\n\r\n"
        )
        # The sender goes on long after the limit, as a client does that reads only when it has sent all.
        for _ in range(64):
            connection.sendall(b"1000\r\n" + b" " * 4096 + b"\r\n")
        connection.sendall(b"0\r\n\r\n")
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
    status, error = status_and_error(answer)
    assert (status, error["code"]) == (413, "request_body_too_large")
    assert b"connection: close" in answer
    [line] = served.telemetry.wait(ev="http_request", status=413)
    assert line["tokens"] is None


def test_a_chunked_body_is_read(shared):
    response = post(shared, iter([GOOD[:10], GOOD[10:20], GOOD[20:]]))
    assert response.json()["choices"][0]["message"]["content"] == "ok"


def test_a_client_that_leaves_within_its_body_is_noted_as_gone(served):
    with served.connect() as connection:
        connection.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            b'content-length: 100\r\n\r\n{"messages"'
        )
    [line] = served.telemetry.wait(ev="http_request")
    assert (line["status"], line["tokens"], line["stream"]) == (499, None, False)


def test_a_client_that_pauses_within_its_body_is_a_408():
    async def receive():
        await asyncio.get_running_loop().create_future()

    scope = {"type": "http", "headers": [(b"content-type", b"application/json")]}
    with pytest.raises(ApiError) as caught:
        asyncio.run(read_json_object(scope, receive, limit=100, idle=0.01))
    assert (caught.value.status, caught.value.code) == (408, "request_timeout")


def test_a_connection_serves_several_requests_after_errors(shared):
    with httpx.Client(base_url=shared.url) as client:
        for _ in range(2):
            assert client.post("/v1/chat/completions", content=b"x").status_code == 415
            assert client.post("/v1/chat/completions", json={}).status_code == 400
            assert client.get("/health").status_code == 200


def test_garbage_instead_of_http_ends_only_its_connection(shared):
    with shared.connect() as connection:
        connection.sendall(b"\x16\x03\x01 this is no HTTP\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 400")
    assert shared.chat().status_code == 200
