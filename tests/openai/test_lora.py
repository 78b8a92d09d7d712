"""Adapters over HTTP: chosen by model or by the field, listed, loaded and unloaded; and what may not be loaded."""

import json

import httpx
import openai
import pytest

from lattice_conformance.gate import Gate


def write(path, fingerprint=None, **told):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"fingerprint": fingerprint or path.stem, **told}))
    return path


@pytest.fixture
def loras(tmp_path):
    """A directory of adapters, and a file beside it that no client may load."""
    root = tmp_path / "loras"
    for name in ("fr", "de", "nested/pl"):
        write(root / f"{name}.scripted")
    write(tmp_path / "secret.scripted")
    return root


@pytest.fixture
def served(serve, loras):
    served = serve(lora_dir=loras)
    for name in ("fr", "de"):
        served.engine.load_adapter(name, loras / f"{name}.scripted")
    return served


@pytest.fixture
def client(served):
    with openai.OpenAI(base_url=f"{served.url}/v1", api_key="unused", max_retries=0, timeout=20) as client:
        yield client


def post(served, route, body, **headers):
    return httpx.post(f"{served.url}/v1/lora/{route}", json=body, headers=headers, timeout=20)


def error_of(response):
    error = response.json()["error"]
    return response.status_code, error["code"], error["param"]


def user(content):
    return [{"role": "user", "content": content}]


# ------------------------------------------------------------------------------------------------ choosing


def test_a_client_chooses_an_adapter_as_a_model(client):
    answers = [
        client.chat.completions.create(model=name, messages=user("[[say:hi]]")) for name in ("fr", "de", "lattice", "scripted")
    ]
    assert [answer.choices[0].message.content for answer in answers] == ["hi<fr>", "hi<de>", "hi", "hi"]
    assert [answer.model for answer in answers] == ["fr", "de", "scripted", "scripted"]


def test_a_client_chooses_an_adapter_by_the_field(client):
    def answer(lora, model="lattice"):
        made = client.chat.completions.create(model=model, messages=user("[[say:hi]]"), extra_body={"lora": lora})
        return made.choices[0].message.content, made.model

    assert answer([{"id": "fr", "scale": 1.0}]) == ("hi<fr>", "fr")
    assert answer([{"id": "fr"}], model="fr") == ("hi<fr>", "fr")
    assert answer([]) == ("hi", "scripted")
    with pytest.raises(openai.BadRequestError, match="`model` names the adapter 'fr' and `lora` wants the adapter 'de'"):
        answer([{"id": "de"}], model="fr")


def test_a_stream_names_the_adapter_in_every_chunk(client):
    with client.chat.completions.create(model="fr", messages=user("[[say:hi]]"), stream=True) as stream:
        chunks = list(stream)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "hi<fr>"
    assert {chunk.model for chunk in chunks} == {"fr"}


def test_models_lists_the_adapters_with_their_parent(client, served):
    models = httpx.get(f"{served.url}/v1/models").json()["data"]
    assert [(model["id"], model.get("parent")) for model in models] == [
        ("scripted", None),
        ("fr", "scripted"),
        ("de", "scripted"),
    ]
    assert [model.id for model in client.models.list()] == ["scripted", "fr", "de"]
    assert client.models.retrieve("fr").id == "fr"
    assert client.models.retrieve("lattice").id == "scripted"
    with pytest.raises(openai.NotFoundError, match="served: scripted, fr, de"):
        client.models.retrieve("pl")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"model": "pl"}, (404, "model_not_found", "model")),
        ({"lora": [{"id": "pl"}]}, (404, "lora_adapter_not_found", "lora")),
        ({"lora": "fr"}, (400, "invalid_request", "lora")),
        ({"lora": [{"id": "fr", "scale": 2}]}, (400, "unsupported_feature", "lora[0].scale")),
        ({"lora": [{"id": "fr"}, {"id": "de"}]}, (400, "unsupported_feature", "lora")),
        ({"model": "fr", "lora": []}, (400, "invalid_request", "lora")),
        ({"adapter": "fr"}, (400, "unsupported_feature", "adapter")),
    ],
)
def test_what_cannot_be_chosen_is_an_error_that_names_the_field(served, body, expected):
    assert error_of(served.chat("hi", **body)) == expected


# ------------------------------------------------------------------------------------------------ list, load, unload


def test_the_list_says_what_each_adapter_is(served):
    body = httpx.get(f"{served.url}/v1/lora").json()
    assert body == {
        "object": "list",
        "data": [
            {
                "id": name,
                "object": "lora",
                "format": "scripted",
                "bytes": 8,
                "fingerprint": name,
                "default": False,
                "requests": 0,
                "status": "resident",
            }
            for name in ("fr", "de")
        ],
    }


def test_an_adapter_is_loaded_used_and_unloaded_while_the_server_runs(served, client):
    response = post(served, "load", {"id": "polish", "path": "nested/pl.scripted"})
    assert (response.status_code, response.json()["id"], response.json()["fingerprint"]) == (200, "polish", "pl")
    assert client.chat.completions.create(model="polish", messages=user("[[say:a]]")).choices[0].message.content == "a<pl>"
    response = post(served, "unload", {"id": "polish"})
    assert (response.status_code, response.json()) == (
        200,
        {"id": "polish", "object": "lora", "requests": 0, "status": "unloaded"},
    )
    assert error_of(served.chat("hi", model="polish")) == (404, "model_not_found", "model")
    assert error_of(post(served, "unload", {"id": "polish"})) == (404, "lora_adapter_not_found", "id")


def test_unloading_one_that_is_in_use_says_so_and_lets_its_stream_end(serve, loras, wait_until):
    gate = Gate()
    served = serve(gate=gate, lora_dir=loras)
    served.engine.load_adapter("fr", loras / "fr.scripted")
    with (
        openai.OpenAI(base_url=f"{served.url}/v1", api_key="unused", max_retries=0, timeout=20) as client,
        client.chat.completions.create(model="fr", messages=user("[[say:abc]]"), stream=True) as stream,
    ):
        assert gate.wait_blocked()
        unloading = post(served, "unload", {"id": "fr"}).json()
        assert (unloading["requests"], unloading["status"]) == (1, "unloading")
        assert httpx.get(f"{served.url}/v1/lora").json()["data"][0]["status"] == "unloading"
        assert [model["id"] for model in httpx.get(f"{served.url}/v1/models").json()["data"]] == ["scripted"]
        gate.open()
        assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == "abc<fr>"
    wait_until(lambda: httpx.get(f"{served.url}/v1/lora").json()["data"] == [])


@pytest.mark.parametrize(
    ("body", "expected", "message"),
    [
        ({"id": "fr", "path": "de.scripted"}, (400, "lora_load_failed", "id"), "'fr' is loaded already"),
        ({"id": "a/b", "path": "de.scripted"}, (400, "lora_load_failed", "id"), "cannot be the name"),
        ({"id": "lattice", "path": "de.scripted"}, (400, "lora_load_failed", "id"), "the name of the model itself"),
        ({"id": "x", "path": "none.scripted"}, (400, "lora_load_failed", None), "none.scripted cannot be read: No such file"),
        ({"id": "x"}, (400, "invalid_request", "path"), "`path` is missing"),
        ({"id": "x", "path": ""}, (400, "invalid_request", "path"), "`path` is missing"),
        ({"id": 1, "path": "fr.scripted"}, (400, "invalid_request", "id"), "must be a string"),
        ({"path": "fr.scripted"}, (400, "invalid_request", "id"), "`id` is missing"),
        ({"id": "x", "path": "fr.scripted", "scale": 2}, (400, "invalid_request", None), '"scale" is no field of this route'),
    ],
)
def test_a_load_that_cannot_be_says_why(served, body, expected, message):
    response = post(served, "load", body)
    assert error_of(response) == expected
    assert message in response.json()["error"]["message"]
    assert [info.name for info in served.engine.adapters()] == ["fr", "de"]


@pytest.mark.parametrize(
    ("told", "status", "code", "message"),
    [
        ({"module": "layers.0.mlp"}, 400, "lora_load_failed", "layers.0.mlp"),
        ({"nbytes": 2**40}, 400, "lora_residency_limit_exceeded", "--max-resident-adapter-bytes"),
        ({"fail": "open"}, 500, "internal_error", "its log has the cause"),
    ],
)
def test_an_adapter_that_cannot_be_loaded_leaves_the_server_serving(served, loras, told, status, code, message):
    write(loras / "bad.scripted", **told)
    response = post(served, "load", {"id": "bad", "path": "bad.scripted"})
    assert error_of(response)[:2] == (status, code)
    assert message in response.json()["error"]["message"]
    assert served.chat("[[say:ok]]", model="fr").json()["choices"][0]["message"]["content"] == "ok<fr>"


def test_a_backend_without_adapters_says_so(serve, loras):
    served = serve(lora_dir=loras, backend_options={"adapters": False})
    assert error_of(post(served, "load", {"id": "fr", "path": "fr.scripted"}))[:2] == (400, "lora_unsupported_backend")


# ------------------------------------------------------------------------------------------------ what may be loaded


@pytest.mark.parametrize("path", ["../secret.scripted", "/etc/passwd", "nested/../../secret.scripted", "~/x", "a\0b"])
def test_a_path_that_is_not_below_the_directory_is_forbidden(served, path):
    response = post(served, "load", {"id": "x", "path": path})
    assert error_of(response) == (403, "lora_changes_not_allowed", "path")
    assert "must be relative to --openai-lora-dir, without `..`" in response.json()["error"]["message"]


def test_links_may_not_lead_out_of_the_directory(served, loras):
    (loras / "link.scripted").symlink_to(loras.parent / "secret.scripted")
    (loras / "directory").symlink_to(loras.parent)
    (loras / "holder").mkdir()
    (loras / "holder" / "adapter_model.safetensors").symlink_to("/etc/passwd")
    (loras / "circle.scripted").symlink_to(loras / "circle.scripted")
    for path in ("link.scripted", "directory/secret.scripted", "holder"):
        response = post(served, "load", {"id": "x", "path": path})
        assert error_of(response) == (403, "lora_changes_not_allowed", "path")
        assert "leads out of --openai-lora-dir" in response.json()["error"]["message"]
    assert error_of(post(served, "load", {"id": "x", "path": "circle.scripted"}))[0] == 400
    (loras / "inside.scripted").symlink_to(loras / "nested" / "pl.scripted")
    assert post(served, "load", {"id": "x", "path": "inside.scripted"}).json()["fingerprint"] == "pl"


def test_where_the_directory_lies_is_not_told(served, loras):
    message = post(served, "load", {"id": "x", "path": "none.scripted"}).json()["error"]["message"]
    assert str(loras) not in message


@pytest.mark.parametrize(("route", "body"), [("load", {"id": "x", "path": "fr.scripted"}), ("unload", {"id": "fr"})])
def test_without_a_directory_nothing_can_be_changed_and_the_list_is_there(serve, loras, route, body):
    served = serve()
    served.engine.load_adapter("fr", loras / "fr.scripted")
    response = post(served, route, body)
    assert error_of(response) == (403, "lora_changes_not_allowed", None)
    assert "--openai-lora-dir DIR" in response.json()["error"]["message"]
    assert [entry["id"] for entry in httpx.get(f"{served.url}/v1/lora").json()["data"]] == ["fr"]


def test_the_routes_want_the_api_key(serve, loras, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("sesame\n")
    served = serve(lora_dir=loras, api_key_file=keys)
    assert httpx.get(f"{served.url}/v1/lora").status_code == 401
    assert post(served, "load", {"id": "fr", "path": "fr.scripted"}).status_code == 401
    assert post(served, "load", {"id": "fr", "path": "fr.scripted"}, authorization="Bearer sesame").status_code == 200


def test_a_body_that_is_too_large_is_answered_before_it_is_read(served):
    response = post(served, "load", {"id": "x", "path": "x" * 2_000_000})
    assert error_of(response)[:2] == (413, "request_body_too_large")


def test_requests_are_answered_while_a_load_waits_for_the_device(serve, loras):
    gate = Gate()
    served = serve(gate=gate, lora_dir=loras)
    with served.send_chat("[[say:ab]]"):
        assert gate.wait_blocked()
        with served.connect() as loading:
            body = json.dumps({"id": "fr", "path": "fr.scripted"}).encode()
            head = f"POST /v1/lora/load HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n"
            loading.sendall(head.encode() + b"content-type: application/json\r\n\r\n" + body)
            assert httpx.get(f"{served.url}/v1/models").status_code == 200
            gate.open()
            assert loading.recv(65536).startswith(b"HTTP/1.1 200")
    assert list(served.backend.model.adapters.values()) == ["fr"]


def test_the_default_adapter_of_the_command_line_answers_for_the_model(start_process, loras):
    process = start_process("--port", "0", "--lora", str(loras / "fr.scripted"), "--lora", f"de={loras / 'de.scripted'}")
    with openai.OpenAI(base_url=f"{process.url}/v1", api_key="unused", max_retries=0, timeout=20) as client:
        made = client.chat.completions.create(model="lattice", messages=user("[[say:hi]]"))
        assert (made.choices[0].message.content, made.model) == ("hi<fr>", "scripted")
        alone = client.chat.completions.create(model="lattice", messages=user("[[say:hi]]"), extra_body={"lora": []})
        assert alone.choices[0].message.content == "hi"
        assert [model.id for model in client.models.list()] == ["scripted", "de", "fr"]
    listed = httpx.get(f"{process.url}/v1/lora").json()["data"]
    assert [(entry["id"], entry["default"]) for entry in listed] == [("de", False), ("fr", True)]
