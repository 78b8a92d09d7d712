from __future__ import annotations

import pytest

from lattice_core.descriptors import Settings
from lattice_core.errors import RequestError, UnsupportedFeatureError
from lattice_core.types import GenerationRequest, Message, SamplingParams
from lattice_core.wire import RequestDefaults
from lattice_stdio.request_line import parse_request
from tests.stdio.running import CORE

DEFAULTS = RequestDefaults.from_settings(Settings(core=CORE | {"seed": 9}))
SAMPLING = SamplingParams(temperature=0.7, top_k=50, top_p=0.9, repetition_penalty=1.1, seed=9)
MESSAGES = [{"role": "system", "content": "s"}, {"role": "user", "content": "u", "name": "n"}]


def parse(**body):
    return parse_request({"prompt": "p"} | body, DEFAULTS)


def test_a_prompt_alone_gets_the_defaults():
    assert parse() == GenerationRequest(prompt="p", max_tokens=512, sampling=SAMPLING)


def test_every_key_reaches_the_request():
    request = parse(
        max_tokens=7, temperature=0, top_k=3, top_p=0.5, repetition_penalty=1.25, seed=5, stop=["a", "b"], model="lattice"
    )
    assert request == GenerationRequest(
        prompt="p",
        model="lattice",
        max_tokens=7,
        stop=("a", "b"),
        sampling=SamplingParams(temperature=0.0, top_k=3, top_p=0.5, repetition_penalty=1.25, seed=5),
    )


def test_null_is_the_same_as_absent():
    keys = ("max_tokens", "temperature", "top_k", "top_p", "repetition_penalty", "seed", "stop", "model", "messages")
    nothing = dict.fromkeys([*keys, "tools", "response_format", "chat_template_kwargs", "id", "n"])
    assert parse(**nothing) == parse()


@pytest.mark.parametrize(
    ("key", "value", "wanted"),
    [
        ("max_tokens", 0, "is 0; it must be at least 1"),
        ("max_tokens", 5.0, "must be an integer, not a number: 5.0"),
        ("max_tokens", True, "must be an integer, not a boolean: true"),
        ("temperature", 2.5, "is 2.5; it must be from 0 to 2"),
        ("temperature", "hot", 'must be a number, not a string: "hot"'),
        ("repetition_penalty", 0, "is 0; it must be from 0.01 to 100"),
        ("model", 5, "must be a string, not an integer: 5"),
        ("messages", {}, "must be an array, not an object of 0"),
        ("messages", [], "must not be empty"),
        ("id", {}, "must be a string or a number, not an object of 0"),
        ("chat_template_kwargs", [1], "must be an object, not an array of 1"),
        ("n", True, "must be an integer, not a boolean: true"),
    ],
)
def test_a_wrong_type_or_value_is_an_error_that_names_the_key(key, value, wanted):
    body = {key: value} if key == "messages" else {"prompt": "p", key: value}
    with pytest.raises(RequestError) as caught:
        parse_request(body, DEFAULTS)
    assert (type(caught.value), caught.value.message, caught.value.param) == (RequestError, f"`{key}` {wanted}", key)


def test_a_value_is_repeated_in_an_error_only_in_part():
    with pytest.raises(RequestError) as caught:
        parse(temperature="x" * 10_000)
    assert len(caught.value.message) < 200


def parse_chat(messages=MESSAGES, **body):
    return parse_request({"messages": messages} | body, DEFAULTS)


def test_messages_reach_the_request_with_template_options():
    request = parse_chat(chat_template_kwargs={"enable_thinking": False})
    assert request.messages == (Message("system", "s"), Message("user", "u"))
    assert request.template_options == {"enable_thinking": False}
    assert request.prompt is None


def test_messages_may_hold_text_parts():
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert parse_chat([{"role": "user", "content": parts}]).messages == (Message("user", "ab"),)


def test_a_wrong_message_is_named_by_its_place():
    with pytest.raises(RequestError, match="must be a string or an array") as caught:
        parse_chat([*MESSAGES, {"role": "user"}])
    assert caught.value.param == "messages[2].content"


def test_prompt_and_messages_exclude_each_other():
    with pytest.raises(RequestError, match="exclude each other"):
        parse(messages=MESSAGES)


def test_template_options_need_messages():
    with pytest.raises(RequestError, match="goes with"):
        parse(chat_template_kwargs={"enable_thinking": False})
    assert parse(chat_template_kwargs={}) == parse()


@pytest.mark.parametrize(
    ("key", "value"), [("tools", [{}]), ("n", 2), ("logprobs", 1), ("reasoning_budget", 100), ("min_p", 0.1)]
)
def test_what_is_not_honoured_is_refused_by_name(key, value):
    with pytest.raises(UnsupportedFeatureError, match=rf"^`{key}` ") as caught:
        parse(**{key: value})
    assert caught.value.param == key


def test_what_is_not_honoured_may_be_sent_at_its_neutral_value():
    neutral = {"tools": [], "tool_choice": "none", "n": 1, "logprobs": False, "reasoning_budget": 0, "presence_penalty": 0.0}
    assert parse(**neutral, logit_bias={}, min_p=0) == parse()


def test_unknown_keys_are_ignored():
    assert parse(user="me", stream=True, whatever={"a": 1}) == parse()
