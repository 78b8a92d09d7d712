import openai
import pytest

from lattice_conformance.gate import Gate


@pytest.fixture
def client(shared):
    with openai.OpenAI(base_url=f"{shared.url}/v1", api_key="unused", max_retries=0, timeout=20) as client:
        yield client


def user(content):
    return [{"role": "user", "content": content}]


def test_a_whole_answer(client):
    answer = client.chat.completions.create(model="lattice", messages=user("[[say:hello]]"))
    assert answer.choices[0].message.content == "hello"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.completion_tokens == 5


def test_a_stream_with_usage(client):
    with client.chat.completions.create(
        model="scripted", messages=user("[[say:héllo]]"), stream=True, stream_options={"include_usage": True}
    ) as stream:
        chunks = list(stream)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "héllo"
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
    assert chunks[-1].usage.completion_tokens == 6
    assert all(chunk.usage is None for chunk in chunks[:-1])


def test_an_answer_can_be_sent_back_as_history(client):
    first = client.chat.completions.create(model="lattice", messages=user("[[say:one]]"))
    history = [*user("[[say:one]]"), first.choices[0].message.model_dump(), *user("[[say:two]]")]
    assert client.chat.completions.create(model="lattice", messages=history).choices[0].message.content == "two"


def test_models(client):
    assert [model.id for model in client.models.list()] == ["scripted"]
    assert client.models.retrieve("scripted").owned_by == "lattice"


def test_errors_have_their_classes(client):
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="gpt-4o", messages=user("x"))
    assert caught.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="lattice", messages=user("x"), temperature=9)
    assert (caught.value.code, caught.value.param) == ("invalid_temperature", "temperature")
    with pytest.raises(openai.InternalServerError):
        client.chat.completions.create(model="lattice", messages=user("[[fail-prefill]]"))


def test_a_failure_in_mid_stream_is_raised(client):
    texts = []
    with (
        client.chat.completions.create(model="lattice", messages=user("[[say:abc]][[fail:2]]"), stream=True) as stream,
        pytest.raises(openai.APIError, match="failed inside the server"),
    ):
        texts.extend(chunk.choices[0].delta.content for chunk in stream)
    assert texts == [None, "a", "b"]


def test_keep_alive_comments_are_invisible(serve):
    gate = Gate()
    served = serve(gate=gate, keepalive=0.02)
    with (
        openai.OpenAI(base_url=f"{served.url}/v1", api_key="unused", max_retries=0, timeout=20) as client,
        client.chat.completions.create(model="lattice", messages=user("[[say:abc]][[delay:60]]"), stream=True) as stream,
    ):
        gate.open()
        assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == "abc"


def test_a_client_that_closes_its_stream_frees_the_row(served, wait_until):
    client = openai.OpenAI(base_url=f"{served.url}/v1", api_key="unused", max_retries=0, timeout=20)
    stream = client.chat.completions.create(
        model="lattice", messages=user("[[repeat:2000]][[delay:5]]"), stream=True, max_tokens=2000
    )
    next(stream)
    next(stream)
    stream.close()
    client.close()
    wait_until(lambda: served.engine.stats().cancelled == 1 and served.engine.stats().live_states == 0)
    assert served.telemetry.wait(ev="http_request")[0]["status"] == 499
