import pytest

from lattice_core.errors import LatticeError
from lattice_core.types import Message, SamplingParams
from lattice_core.wire import RequestDefaults
from lattice_openai.chat_request import parse_chat_request
from lattice_openai.errors import from_lattice

USER = [{"role": "user", "content": "hi"}]
DEFAULTS = RequestDefaults(512, SamplingParams(0.7, 50, 0.9, 1.1, None))


def parse(body):
    return parse_chat_request({"messages": USER, **body}, defaults=DEFAULTS)


def refusal(body):
    """The HTTP form of what refuses ``body``."""
    with pytest.raises(LatticeError) as caught:
        parse(body)
    return from_lattice(caught.value)


def test_defaults_of_the_server_fill_what_the_request_leaves_open():
    request = parse({})
    assert request.generation.messages == (Message("user", "hi"),)
    assert request.generation.max_tokens == 512
    assert request.generation.sampling == SamplingParams(0.7, 50, 0.9, 1.1, None)
    assert request.generation.stop == ()
    assert request.generation.grammar is None
    assert (request.stream, request.include_usage, request.unknown) == (False, False, ())


def test_null_is_the_same_as_absent():
    names = ["model", "stream", "stream_options", "max_tokens", "max_completion_tokens", "temperature", "top_p", "top_k"]
    names += ["repetition_penalty", "seed", "stop", "n", "response_format", "tools", "logit_bias", "reasoning_effort"]
    assert parse(dict.fromkeys(names)) == parse({})


def test_every_own_field_reaches_the_generation_request():
    request = parse(
        {
            "model": "smollm2-135m",
            "stream": True,
            "stream_options": {"include_usage": True, "include_obfuscation": False},
            "max_tokens": 7,
            "temperature": 0,
            "top_p": 1,
            "top_k": 3,
            "repetition_penalty": 1.5,
            "seed": 2**64 - 1,
            "stop": ["a", "b"],
            "n": 1,
            "chat_template_kwargs": {"enable_thinking": False},
        }
    )
    assert request.generation.max_tokens == 7
    assert request.generation.sampling == SamplingParams(0.0, 3, 1.0, 1.5, 2**64 - 1)
    assert request.generation.stop == ("a", "b")
    assert request.generation.template_options == {"enable_thinking": False}
    assert (request.stream, request.include_usage, request.unknown) == (True, True, ())


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        ({"temperature": "hot"}, "invalid_temperature", "temperature"),
        ({"temperature": True}, "invalid_temperature", "temperature"),
        ({"temperature": 2.5}, "invalid_temperature", "temperature"),
        ({"temperature": -0.1}, "invalid_temperature", "temperature"),
        ({"temperature": float("nan")}, "invalid_temperature", "temperature"),
        ({"temperature": 10**400}, "invalid_temperature", "temperature"),
        ({"top_p": 0}, "invalid_top_p", "top_p"),
        ({"top_p": 1.5}, "invalid_top_p", "top_p"),
        ({"top_k": -1}, "invalid_top_k", "top_k"),
        ({"top_k": 1.0}, "invalid_top_k", "top_k"),
        ({"top_k": {"a": 1}}, "invalid_top_k", "top_k"),
        ({"repetition_penalty": 0}, "invalid_repetition_penalty", "repetition_penalty"),
        ({"repetition_penalty": 1e30}, "invalid_repetition_penalty", "repetition_penalty"),
        ({"max_tokens": 0}, "invalid_max_tokens", "max_tokens"),
        ({"max_tokens": -5}, "invalid_max_tokens", "max_tokens"),
        ({"max_tokens": 5.0}, "invalid_max_tokens", "max_tokens"),
        ({"max_tokens": True}, "invalid_max_tokens", "max_tokens"),
        ({"max_completion_tokens": 0}, "invalid_max_tokens", "max_completion_tokens"),
        ({"max_tokens": 3, "max_completion_tokens": 4}, "invalid_request", "max_completion_tokens"),
        ({"seed": "7"}, "invalid_seed", "seed"),
        ({"seed": False}, "invalid_seed", "seed"),
        ({"seed": 2**64}, "invalid_seed", "seed"),
        ({"seed": -(2**63) - 1}, "invalid_seed", "seed"),
        ({"stop": ""}, "invalid_stop", "stop"),
        ({"stop": []}, "invalid_stop", "stop"),
        ({"stop": ["a"] * 5}, "invalid_stop", "stop"),
        ({"stop": ["a", ""]}, "invalid_stop", "stop"),
        ({"stop": ["a", 1]}, "invalid_stop", "stop[1]"),
        ({"stop": 1}, "invalid_stop", "stop"),
        ({"stop": "é" * 2049}, "invalid_stop", "stop"),
        ({"stop": ["a" * 4096, "b" * 4096, "c"]}, "invalid_stop", "stop"),
        ({"n": 2}, "unsupported_feature", "n"),
        ({"n": 0}, "invalid_request", "n"),
        ({"n": True}, "invalid_request", "n"),
        ({"stream": "true"}, "invalid_request", "stream"),
        ({"stream": 1}, "invalid_request", "stream"),
        ({"stream_options": []}, "invalid_request", "stream_options"),
        ({"stream_options": {"include_usage": "false"}}, "invalid_request", "stream_options.include_usage"),
        (
            {"stream_options": {"continuous_usage_stats": True}},
            "unsupported_feature",
            "stream_options.continuous_usage_stats",
        ),
        ({"model": 3}, "invalid_request", "model"),
        ({"response_format": "json"}, "invalid_request", "response_format"),
        ({"response_format": {}}, "invalid_request", "response_format.type"),
        ({"response_format": {"type": 3}}, "invalid_request", "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, "invalid_request", "response_format.json_schema.schema"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": 42}}},
            "invalid_request",
            "response_format.json_schema.schema",
        ),
        ({"response_format": {"type": "json_object", "schema": {}}}, "unsupported_feature", "response_format"),
        ({"messages": None}, "invalid_messages", "messages"),
        ({"prompt": "hi"}, "unsupported_feature", "prompt"),
        ({"tools": [{}]}, "unsupported_feature", "tools"),
        ({"chat_template_kwargs": []}, "invalid_request", "chat_template_kwargs"),
        ({"messages": []}, "invalid_messages", "messages"),
        ({"messages": "hi"}, "invalid_messages", "messages"),
        ({"messages": USER * 4097}, "invalid_messages", "messages"),
        ({"messages": ["hi"]}, "invalid_messages", "messages[0]"),
        ({"messages": [*USER, {"role": "user"}]}, "invalid_messages", "messages[1].content"),
        ({"messages": [{"role": "user", "content": None}]}, "invalid_messages", "messages[0].content"),
        ({"messages": [{"role": "assistant", "content": None}]}, "invalid_messages", "messages[0].content"),
        ({"messages": [{"role": "user", "content": 3}]}, "invalid_messages", "messages[0].content"),
        ({"messages": [{"role": "user", "content": []}]}, "invalid_messages", "messages[0].content"),
        ({"messages": [{"role": "user", "content": ["x"]}]}, "invalid_messages", "messages[0].content[0]"),
        ({"messages": [{"role": "user", "content": [{}]}]}, "invalid_messages", "messages[0].content[0].type"),
        (
            {"messages": [{"role": "user", "content": [{"type": "text"}]}]},
            "invalid_messages",
            "messages[0].content[0].text",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x"}}]}]},
            "unsupported_feature",
            "messages[0].content[0].type",
        ),
        ({"messages": [{"content": "x"}]}, "invalid_role", "messages[0].role"),
        ({"messages": [{"role": "wizard", "content": "x"}]}, "invalid_role", "messages[0].role"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "unsupported_feature", "messages[0].role"),
        (
            {"messages": [{"role": "assistant", "content": "x", "tool_calls": [{}]}]},
            "unsupported_feature",
            "messages[0].tool_calls",
        ),
    ],
)
def test_a_wrong_value_is_a_400_that_names_the_field(body, code, param):
    error = refusal(body)
    assert (error.status, error.code, error.param) == (400, code, param)
    assert error.envelope()["error"]["type"] == "invalid_request_error"
    assert "`" in error.message


@pytest.mark.parametrize("name", ["lattice", "smollm2-135m"])
def test_the_alias_and_the_served_id_answer_as_the_served_model(name):
    request = parse({"model": name})
    assert (request.generation.model, request.answering("smollm2-135m")) == (name, "smollm2-135m")
    assert parse({}).answering("smollm2-135m") == "smollm2-135m"


def test_an_adapter_answers_under_its_name_however_it_is_asked_for():
    assert parse({"model": "fr"}).answering("base") == "fr"
    assert parse({"lora": [{"id": "fr"}]}).answering("base") == "fr"
    assert parse({"lora": []}).answering("base") == "base"


def test_unsupported_features_are_named_before_the_model_is_looked_at():
    assert refusal({"model": "nope", "logprobs": True}).code == "unsupported_feature"


def test_unknown_fields_are_accepted_and_named():
    messages = [{"role": "user", "content": "hi", "mood": 1}, {"role": "user", "content": "hi", "mood": 2}]
    request = parse({"wibble": 1, "messages": messages, "stream_options": {"wobble": 1}})
    assert request.unknown == ("wibble", "stream_options.wobble", "messages[].mood")


def test_a_message_shows_hostile_values_in_one_short_ascii_line():
    error = refusal({"messages": [{"role": "\x1b[31m\n" + "é" * 1000, "content": "hi"}]})
    assert len(error.message) < 200
    assert error.message.isascii()
    assert error.message.isprintable()
