import httpx
import pytest

KEY = "s3same-open"


def get(served, path="/v1/models", **headers):
    return httpx.get(f"{served.url}{path}", headers={name.replace("_", "-"): value for name, value in headers.items()})


@pytest.mark.parametrize("host", ["localhost", "localhost:1", "127.0.0.1:11435", "[::1]:80", "LOCALHOST"])
def test_the_machines_own_names_are_let_in(shared, host):
    assert get(shared, host=host).status_code == 200


@pytest.mark.parametrize("path", ["/", "/health", "/v1/models", "/nope"])
@pytest.mark.parametrize("host", ["evil.example", "evil.example:11435", "127.0.0.1.evil.example", "localhost.evil.example"])
def test_a_foreign_host_header_is_a_403(shared, host, path):
    response = get(shared, path, host=host)
    assert (response.status_code, response.json()["error"]["code"]) == (403, "host_not_allowed")
    shared.telemetry.wait(ev="http_request", status=403, route=path)


def test_a_host_that_the_operator_allows_is_let_in(serve):
    served = serve(allowed_host=("api.example",))
    assert get(served, host="api.example").status_code == 200
    assert get(served, host="evil.example").status_code == 403


def test_the_host_check_can_be_switched_off(serve):
    assert get(serve(allowed_host=("*",)), host="evil.example").status_code == 200


def test_by_default_no_web_page_is_let_in(shared):
    response = get(shared, origin="https://evil.example")
    assert not [name for name in response.headers if name.startswith("access-control-")]
    preflight = httpx.options(
        f"{shared.url}/v1/chat/completions",
        headers={"origin": "https://evil.example", "access-control-request-method": "POST"},
    )
    assert preflight.status_code == 405
    assert not [name for name in preflight.headers if name.startswith("access-control-")]


def test_pages_of_a_listed_origin_may_send_json_and_keys(serve, monkeypatch):
    monkeypatch.setenv("LATTICE_OPENAI_API_KEY", KEY)
    served = serve(cors_origin=("https://app.example",))
    preflight = httpx.options(
        f"{served.url}/v1/chat/completions",
        headers={
            "origin": "https://app.example",
            "access-control-request-method": "POST",
            "access-control-request-headers": "authorization,content-type,x-stainless-os",
        },
    )
    assert preflight.status_code == 200
    assert preflight.headers["access-control-allow-origin"] == "https://app.example"
    assert "authorization" in preflight.headers["access-control-allow-headers"]
    refused = get(served, origin="https://app.example")
    assert refused.status_code == 401
    assert refused.headers["access-control-allow-origin"] == "https://app.example"
    assert "access-control-allow-origin" not in get(served, origin="https://evil.example").headers


@pytest.mark.parametrize(
    "authorization", [None, "Bearer wrong", "Bearer", f"Basic {KEY}", KEY, f"Bearer {KEY}x", "Bearer \xff"]
)
def test_without_the_key_there_is_a_401(serve, monkeypatch, authorization):
    monkeypatch.setenv("LATTICE_OPENAI_API_KEY", KEY)
    served = serve()
    headers = {} if authorization is None else {"authorization": authorization.encode("latin-1")}
    response = httpx.get(f"{served.url}/v1/models", headers=headers)
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (401, "invalid_api_key")
    assert response.headers["www-authenticate"] == "Bearer"
    assert get(served, "/health").status_code == 200


@pytest.mark.parametrize("scheme", ["Bearer", "bearer"])
def test_with_a_key_of_the_file_everything_works(serve, tmp_path, scheme):
    path = tmp_path / "keys"
    path.write_text(f"other\n{KEY}\n")
    served = serve(api_key_file=path)
    assert get(served, authorization=f"{scheme} {KEY}").status_code == 200
    assert served.chat().status_code == 401


def test_a_key_is_never_logged(serve, monkeypatch, caplog):
    caplog.set_level("DEBUG")
    monkeypatch.setenv("LATTICE_OPENAI_API_KEY", KEY)
    served = serve()
    get(served, authorization=f"Bearer {KEY}")
    get(served, authorization=f"Bearer wrong-{KEY}")
    served.telemetry.wait(2, ev="http_request")
    assert KEY not in caplog.text
    assert KEY not in "".join(served.telemetry.raw)


def test_a_request_of_http_1_0_without_a_host_is_let_in(shared):
    with shared.connect() as connection:
        connection.sendall(b"GET /health HTTP/1.0\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")
