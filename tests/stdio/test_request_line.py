from __future__ import annotations

import re

import pytest

from lattice_core.descriptors import Settings
from lattice_core.errors import RequestError, UnsupportedFeatureError
from lattice_core.types import GenerationRequest, GrammarRequest, Message, SamplingParams
from lattice_stdio.request_line import Defaults, parse_request
from tests.stdio.running import CORE

DEFAULTS = Defaults.of(Settings(core=CORE | {"seed": 9}))
SAMPLING = SamplingParams(temperature=0.7, top_k=50, top_p=0.9, repetition_penalty=1.1, seed=9)


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
    nothing = dict.fromkeys([*keys, "tools", "response_format", "chat_template_kwargs", "id"])
    assert parse(**nothing) == parse()


def test_a_seed_of_minus_one_asks_for_a_fresh_one():
    assert parse(seed=-1).sampling.seed is None
    assert parse(seed=2**64 - 1).sampling.seed == 2**64 - 1


@pytest.mark.parametrize(
    ("key", "value", "wanted"),
    [
        ("max_tokens", 0, "a whole number of at least 1, not 0"),
        ("max_tokens", -5, "not -5"),
        ("max_tokens", 5.0, "not 5.0"),
        ("max_tokens", "5", 'not "5"'),
        ("max_tokens", True, "not true"),
        ("top_k", -1, "a whole number of at least 0, not -1"),
        ("top_k", 1.5, "not 1.5"),
        ("temperature", -0.1, "a number from 0 to 100, not -0.1"),
        ("temperature", 101, "not 101"),
        ("temperature", "hot", 'not "hot"'),
        ("temperature", False, "not false"),
        ("top_p", 0, "a number above 0 and at most 1, not 0"),
        ("top_p", 1.01, "not 1.01"),
        ("repetition_penalty", 0, "a number above 0 and at most 100, not 0"),
        ("seed", -2, "a whole number from -1 to 18446744073709551615, not -2"),
        ("seed", 2**64, "not 18446744073709551616"),
        ("seed", 1.0, "not 1.0"),
        ("stop", 5, "a string or a list of 1 to 4 strings, not 5"),
        ("stop", [], "not []"),
        ("stop", list("abcde"), "a string or a list of 1 to 4 strings"),
        ("model", 5, "a string, not 5"),
        ("messages", {}, "a list of 1 to 4096 messages, not {}"),
        ("messages", [], "not []"),
        ("id", {}, "a string or a number, not {}"),
        ("chat_template_kwargs", [1], "an object, not [1]"),
        ("response_format", "json", 'an object, not "json"'),
    ],
)
def test_a_wrong_type_or_value_is_an_error_that_names_the_key(key, value, wanted):
    with pytest.raises(RequestError, match=rf'^"{key}" must be .*{re.escape(wanted)}') as caught:
        parse(**{key: value})
    assert caught.value.param == key


@pytest.mark.parametrize(
    ("stop", "named"),
    [([""], "stop[0]"), (["a", 5], "stop[1]"), (["é" * 2049], "stop[0]"), ("", "stop[0]")],
)
def test_every_stop_string_has_its_limits(stop, named):
    with pytest.raises(RequestError, match=re.escape(f'"{named}" must be a string of 1 to 4096 bytes')):
        parse(stop=stop)


def test_stop_strings_have_a_limit_together():
    with pytest.raises(RequestError, match="12288 bytes together; at most 8192"):
        parse(stop=["x" * 4096] * 3)


def test_a_message_is_repeated_in_an_error_only_in_part():
    with pytest.raises(RequestError) as caught:
        parse(temperature="x" * 10_000)
    assert len(caught.value.message) < 200


MESSAGES = [{"role": "system", "content": "s"}, {"role": "user", "content": "u", "name": "n"}]


def parse_chat(messages=MESSAGES, **body):
    return parse_request({"messages": messages} | body, DEFAULTS)


def test_messages_reach_the_request_with_template_options():
    request = parse_chat(chat_template_kwargs={"enable_thinking": False})
    assert request.messages == (Message("system", "s"), Message("user", "u"))
    assert request.template_options == {"enable_thinking": False}
    assert request.prompt is None


@pytest.mark.parametrize(
    ("message", "named"),
    [
        (5, '"messages[0]" must be an object'),
        ({"content": "x"}, '"messages[0].role" must be one of system, developer, user, assistant, tool'),
        ({"role": "bot", "content": "x"}, '"messages[0].role" must be one of'),
        ({"role": "user"}, '"messages[0].content" must be a string, not null'),
        ({"role": "user", "content": [1]}, '"messages[0].content" must be a string'),
        ({"role": "assistant", "content": "", "tool_calls": [{}]}, '"messages[0].tool_calls" must be left out'),
    ],
)
def test_a_wrong_message_is_named_by_its_place(message, named):
    with pytest.raises(RequestError, match=re.escape(named)):
        parse_chat([message])


def test_prompt_and_messages_exclude_each_other():
    with pytest.raises(RequestError, match="exclude each other"):
        parse(messages=MESSAGES)


def test_template_options_need_messages():
    with pytest.raises(RequestError, match="goes with"):
        parse(chat_template_kwargs={"enable_thinking": False})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("tools", [{}]),
        ("n", 2),
        ("logprobs", True),
        ("logprobs", 1),
        ("top_logprobs", 3),
        ("reasoning_budget", 100),
        ("presence_penalty", 0.5),
        ("logit_bias", {"5": 1}),
        ("min_p", 0.1),
        ("max_completion_tokens", 5),
        ("enable_thinking", False),
        ("ignore_eos", 0),
        ("n", True),
    ],
)
def test_what_is_not_honoured_is_refused_by_name(key, value):
    with pytest.raises(UnsupportedFeatureError, match=rf'^"{key}" is not supported here: ') as caught:
        parse(**{key: value})
    assert caught.value.param == key


def test_what_is_not_honoured_may_be_sent_at_its_neutral_value():
    neutral = {"tools": [], "tool_choice": "none", "n": 1, "logprobs": False, "reasoning_budget": 0, "presence_penalty": 0.0}
    assert parse(**neutral, logit_bias={}, min_p=0) == parse()


def test_unknown_keys_are_ignored():
    assert parse(user="me", stream=True, whatever={"a": 1}) == parse()


def test_a_response_format_names_a_grammar_and_changes_the_defaults_that_would_break_it():
    request = parse(response_format={"type": "regex", "regex": "[0-9]+"})
    assert request.grammar == GrammarRequest("regex", "[0-9]+")
    assert (request.sampling.repetition_penalty, request.max_tokens) == (1.0, None)
    assert parse(response_format={"type": "text"}) == parse()


def test_defaults_that_somebody_set_hold_with_a_grammar_too():
    sources = {"max-tokens": "flag", "repetition-penalty": "environment", "seed": "default"}
    defaults = Defaults.of(Settings(core=CORE, sources=sources))
    request = parse_request({"prompt": "p", "response_format": {"type": "regex"}}, defaults)
    assert (request.sampling.repetition_penalty, request.max_tokens) == (1.1, 512)


def test_a_response_format_without_a_type_or_with_more_is_refused():
    with pytest.raises(RequestError, match=r'"response_format\.type" must be a string'):
        parse(response_format={"schema": {}})
    with pytest.raises(RequestError, match=r'"response_format\.strict" is not known'):
        parse(response_format={"type": "regex", "regex": "a", "strict": True})
