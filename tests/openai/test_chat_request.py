import pytest

from lattice_core.types import GrammarRequest, Message, SamplingParams
from lattice_openai.chat_request import parse_chat_request
from lattice_openai.config import RequestDefaults
from lattice_openai.errors import ApiError

USER = [{"role": "user", "content": "hi"}]


def parse(body, defaults=None):
    return parse_chat_request({"messages": USER, **body}, served="smollm2-135m", defaults=defaults or RequestDefaults())


def refusal(body):
    with pytest.raises(ApiError) as caught:
        parse(body)
    return caught.value


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
        }
    )
    assert request.generation.max_tokens == 7
    assert request.generation.sampling == SamplingParams(0.0, 3, 1.0, 1.5, 2**64 - 1)
    assert request.generation.stop == ("a", "b")
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


def test_missing_messages_are_named():
    with pytest.raises(ApiError) as caught:
        parse_chat_request({}, served="x", defaults=RequestDefaults())
    assert (caught.value.status, caught.value.code, caught.value.param) == (400, "invalid_messages", "messages")


@pytest.mark.parametrize("name", ["lattice", "smollm2-135m"])
def test_alias_and_served_id_are_the_served_model(name):
    assert parse({"model": name}) == parse({})


@pytest.mark.parametrize("name", ["gpt-4o", "", "Lattice", "smollm2-135m "])
def test_another_model_is_a_404_that_lists_what_is_served(name):
    error = refusal({"model": name})
    assert (error.status, error.code, error.param) == (404, "model_not_found", "model")
    assert "smollm2-135m" in error.message


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"tools": [{"type": "function"}]}, "tools"),
        ({"tool_choice": "auto"}, "tool_choice"),
        ({"functions": [{}]}, "functions"),
        ({"logprobs": True}, "logprobs"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"presence_penalty": 0.5}, "presence_penalty"),
        ({"presence_penalty": "hot"}, "presence_penalty"),
        ({"presence_penalty": False}, "presence_penalty"),
        ({"frequency_penalty": -1}, "frequency_penalty"),
        ({"logit_bias": {"5": 1}}, "logit_bias"),
        ({"logit_bias": {"AI": -100}}, "logit_bias"),
        ({"min_p": 0.05}, "min_p"),
        ({"typical_p": 0.9}, "typical_p"),
        ({"mirostat": 2}, "mirostat"),
        ({"mirostat_tau": 5.0}, "mirostat_tau"),
        ({"dry_base": 1.75}, "dry_base"),
        ({"grammar": 'root ::= "a"'}, "grammar"),
        ({"guided_json": {}}, "guided_json"),
        ({"guided_choice": ["a"]}, "guided_choice"),
        ({"reasoning_budget": 64}, "reasoning_budget"),
        ({"reasoning_effort": "low"}, "reasoning_effort"),
        ({"chat_template_kwargs": {"enable_thinking": False}}, "chat_template_kwargs"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"audio": {"voice": "x"}}, "audio"),
        ({"prediction": {"type": "content"}}, "prediction"),
        ({"repeat_penalty": 1.0}, "repeat_penalty"),
        ({"n_predict": 5}, "n_predict"),
        ({"ignore_eos": True}, "ignore_eos"),
        ({"prompt": "hi"}, "prompt"),
    ],
)
def test_what_would_change_the_output_and_is_not_built_is_refused_by_name(body, field):
    error = refusal(body)
    assert (error.status, error.code, error.param) == (400, "unsupported_feature", field)
    assert field in error.message


@pytest.mark.parametrize(
    "body",
    [
        {"tools": [], "tool_choice": "none", "functions": []},
        {"logprobs": False, "top_logprobs": 0},
        {"presence_penalty": 0, "frequency_penalty": 0.0, "logit_bias": {}},
        {"min_p": 0.0, "typical_p": 1.0, "top_a": 0, "tfs_z": 1},
        {"mirostat": 0, "mirostat_tau": 5.0, "mirostat_eta": 0.1},
        {"dry_multiplier": 0, "dry_base": 1.75, "dry_sequence_breakers": ["\n"]},
        {"modalities": ["text"], "audio": None, "reasoning_budget": 0},
        {"user": "u", "metadata": {"a": "b"}, "store": True, "service_tier": "auto", "parallel_tool_calls": True},
        {"safety_identifier": "s", "prompt_cache_key": "k"},
        {"response_format": {"type": "text"}},
    ],
)
def test_neutral_values_and_metadata_change_nothing(body):
    assert parse(body) == parse({})


def test_unsupported_features_are_named_before_the_model_is_looked_at():
    assert refusal({"model": "nope", "logprobs": True}).code == "unsupported_feature"


def test_unknown_fields_are_accepted_and_named():
    messages = [{"role": "user", "content": "hi", "mood": 1}, {"role": "user", "content": "hi", "mood": 2}]
    request = parse({"wibble": 1, "messages": messages, "stream_options": {"wobble": 1}})
    assert request.unknown == ("wibble", "stream_options.wobble", "messages[].mood")


def test_text_parts_are_joined_and_developer_is_system():
    request = parse(
        {
            "messages": [
                {"role": "developer", "content": "be brief"},
                {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "name": "Bo"},
                {"role": "assistant", "content": "", "tool_calls": None, "refusal": None, "audio": None},
            ]
        }
    )
    assert request.generation.messages == (
        Message("system", "be brief"),
        Message("user", "ab"),
        Message("assistant", ""),
    )


def test_4096_messages_are_allowed():
    assert len(parse({"messages": USER * 4096}).generation.messages) == 4096


def test_stop_strings_at_the_limits_are_allowed():
    assert parse({"stop": ["a" * 4096, "b" * 4096]}).generation.stop == ("a" * 4096, "b" * 4096)


@pytest.mark.parametrize("body", [{"max_completion_tokens": 3}, {"max_tokens": 3, "max_completion_tokens": 3}])
def test_max_completion_tokens_is_max_tokens(body):
    assert parse(body).generation.max_tokens == 3


def test_a_huge_max_tokens_and_a_huge_top_k_are_no_error():
    request = parse({"max_tokens": 2**31 - 1, "top_k": 10**30})
    assert request.generation.max_tokens == 2**31 - 1
    assert request.generation.sampling.top_k == 2**31 - 1


@pytest.mark.parametrize(("seed", "expected"), [(-1, None), (0, 0), (-2, 2**64 - 2), (2**63, 2**63)])
def test_seed_minus_one_is_random_and_other_negative_ones_are_64_bit(seed, expected):
    assert parse({"seed": seed}, RequestDefaults(seed=5)).generation.sampling.seed == expected


def test_without_a_seed_the_servers_own_is_used():
    assert parse({}, RequestDefaults(seed=5)).generation.sampling.seed == 5


@pytest.mark.parametrize(
    ("response_format", "grammar"),
    [
        ({"type": "json_object"}, GrammarRequest("json_object", None)),
        ({"type": "regex", "regex": "[0-9]+"}, GrammarRequest("regex", "[0-9]+")),
        (
            {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}},
            GrammarRequest("json_schema", {"name": "n", "schema": {"type": "object"}}),
        ),
        ({"type": "xml"}, GrammarRequest("xml", None)),
    ],
)
def test_a_response_format_names_a_grammar_and_holds_its_spec(response_format, grammar):
    assert parse({"response_format": response_format}).generation.grammar == grammar


def test_a_constrained_answer_has_no_default_penalty_and_the_rest_of_the_context():
    generation = parse({"response_format": {"type": "json_object"}}).generation
    assert (generation.max_tokens, generation.sampling.repetition_penalty) == (None, 1.0)


def test_a_constrained_answer_keeps_what_the_operator_or_the_client_set():
    set_by_operator = RequestDefaults(
        max_tokens=9, repetition_penalty=1.2, explicit=frozenset({"max-tokens", "repetition-penalty"})
    )
    generation = parse({"response_format": {"type": "json_object"}}, set_by_operator).generation
    assert (generation.max_tokens, generation.sampling.repetition_penalty) == (9, 1.2)
    generation = parse({"response_format": {"type": "json_object"}, "max_tokens": 4, "repetition_penalty": 1.3}).generation
    assert (generation.max_tokens, generation.sampling.repetition_penalty) == (4, 1.3)


def test_a_message_shows_hostile_values_in_one_short_ascii_line():
    error = refusal({"model": "\x1b[31m\n" + "é" * 1000})
    assert len(error.message) < 200
    assert error.message.isascii()
    assert error.message.isprintable()
