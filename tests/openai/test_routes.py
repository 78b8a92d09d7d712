import json

import httpx
import pytest


def test_root_lists_the_routes(shared):
    response = httpx.get(f"{shared.url}/")
    assert response.status_code == 200
    assert response.json() == {
        "name": "lattice",
        "object": "engine",
        "endpoints": [
            "/v1/chat/completions",
            "/v1/models",
            "/v1/lora",
            "/v1/lora/load",
            "/v1/lora/unload",
            "/health",
        ],
    }


def test_health_is_the_text_ok(shared):
    response = httpx.get(f"{shared.url}/health")
    assert (response.status_code, response.text) == (200, "ok")
    assert response.headers["content-type"].startswith("text/plain")


@pytest.mark.parametrize("path", ["/", "/health"])
def test_probes_may_use_head(shared, path):
    response = httpx.head(f"{shared.url}{path}")
    assert (response.status_code, response.content) == (200, b"")


def test_models_lists_the_served_model(shared):
    first = httpx.get(f"{shared.url}/v1/models").json()
    assert first["object"] == "list"
    [model] = first["data"]
    assert isinstance(model["created"], int)
    assert model == {"id": "scripted", "object": "model", "created": model["created"], "owned_by": "lattice"}
    assert httpx.get(f"{shared.url}/v1/models").json() == first


def test_one_model_is_shown_by_its_id(shared):
    assert httpx.get(f"{shared.url}/v1/models/scripted").json()["id"] == "scripted"
    response = httpx.get(f"{shared.url}/v1/models/org/other")
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "model_not_found"
    assert "scripted" in response.json()["error"]["message"]


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nope", 404, "not_found"),
        ("POST", "/v1/completions", 404, "not_found"),
        ("GET", "/docs", 404, "not_found"),
        ("GET", "/openapi.json", 404, "not_found"),
        ("GET", "/v1/models/", 404, "model_not_found"),
        ("GET", "/v1/chat/completions", 405, "method_not_allowed"),
        ("DELETE", "/v1/models", 405, "method_not_allowed"),
        ("OPTIONS", "/v1/chat/completions", 405, "method_not_allowed"),
    ],
)
def test_unknown_routes_and_methods_answer_in_the_envelope(shared, method, path, status, code):
    response = httpx.request(method, f"{shared.url}{path}")
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["type"]) == (status, code, "invalid_request_error")
    assert sorted(error) == ["code", "message", "param", "type"]
    assert ("allow" in response.headers) == (status == 405)
    [line] = shared.telemetry.wait(ev="http_request", method=method, route=path)
    assert (line["status"], line["tokens"], line["stream"]) == (status, None, False)


def test_every_request_has_one_telemetry_line_with_the_documented_members(served):
    httpx.get(f"{served.url}/health")
    served.chat("[[say:abc]]")
    served.chat("[[say:abc]]", stream=True)
    served.chat(model="nope")
    served.telemetry.wait(4, ev="http_request")
    by_end = sorted((e["route"], e["status"], e["tokens"], e["stream"]) for e in served.telemetry.events[1:])
    assert by_end == [
        ("/health", 200, None, False),
        ("/v1/chat/completions", 200, 3, False),
        ("/v1/chat/completions", 200, 3, True),
        ("/v1/chat/completions", 404, None, False),
    ]
    for line, event in zip(served.telemetry.raw[1:], served.telemetry.events[1:], strict=True):
        assert line.startswith('@@lattice {"ev":"http_request","method":')
        assert list(event) == ["ev", "method", "route", "status", "tokens", "dur_ms", "stream"]
        assert isinstance(event["dur_ms"], float)
        assert event["dur_ms"] > 0


def test_a_query_string_is_not_written_to_telemetry(served):
    httpx.get(f"{served.url}/health?key=sesame")
    served.telemetry.wait(ev="http_request", route="/health")
    assert "sesame" not in json.dumps(served.telemetry.raw)
