import pytest

from lattice_core.errors import RequestError, UnsupportedFeatureError
from lattice_core.wire import GENERATION_FIELDS, refuse_unsupported, unknown_fields
from lattice_core.wire.unsupported_fields import GOVERNED, INERT, INSTEAD, NEUTRAL


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"tools": [{"type": "function"}]}, "tools"),
        ({"tool_choice": "auto"}, "tool_choice"),
        ({"functions": [{}]}, "functions"),
        ({"logprobs": True}, "logprobs"),
        ({"logprobs": 0}, "logprobs"),
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
        ({"enable_thinking": False}, "enable_thinking"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"audio": {"voice": "x"}}, "audio"),
        ({"prediction": {"type": "content"}}, "prediction"),
        ({"repeat_penalty": 1.0}, "repeat_penalty"),
        ({"n_predict": 5}, "n_predict"),
        ({"ignore_eos": True}, "ignore_eos"),
        ({"ignore_eos": 0}, "ignore_eos"),
        ({"prompt": "hi"}, "prompt"),
        ({"n": 2}, "n"),
    ],
)
def test_what_would_change_the_output_and_is_not_built_is_refused_by_name(body, field):
    with pytest.raises(UnsupportedFeatureError, match=rf"^`{field}` ") as caught:
        refuse_unsupported(body)
    assert caught.value.param == field


@pytest.mark.parametrize(
    "body",
    [
        {"tools": [], "tool_choice": "none", "functions": [], "n": 1},
        {"logprobs": False, "top_logprobs": 0},
        {"presence_penalty": 0, "frequency_penalty": 0.0, "logit_bias": {}},
        {"min_p": 0.0, "typical_p": 1.0, "top_a": 0, "tfs_z": 1},
        {"mirostat": 0, "mirostat_tau": 5.0, "mirostat_eta": 0.1},
        {"dry_multiplier": 0, "dry_base": 1.75, "dry_sequence_breakers": ["\n"]},
        {"modalities": ["text"], "audio": None, "reasoning_budget": 0},
        {"user": "u", "metadata": {"a": "b"}, "store": True, "service_tier": "auto", "parallel_tool_calls": True},
        {"safety_identifier": "s", "prompt_cache_key": "k"},
        dict.fromkeys([*NEUTRAL, *GOVERNED, *INERT, "n"]),
    ],
)
def test_neutral_values_metadata_and_null_are_accepted_and_known(body):
    refuse_unsupported(body)
    assert unknown_fields(body, frozenset()) == ()


@pytest.mark.parametrize("value", [0, True, 1.0, "1"])
def test_a_number_of_choices_that_is_none_is_a_wrong_value(value):
    with pytest.raises(RequestError) as caught:
        refuse_unsupported({"n": value})
    assert (type(caught.value), caught.value.param) == (RequestError, "n")


def test_a_field_that_the_frontend_honours_is_left_to_it():
    refuse_unsupported({"prompt": "hi"}, frozenset({"prompt"}))


def test_the_way_out_names_the_field_that_serves_the_purpose():
    with pytest.raises(UnsupportedFeatureError, match=r"use max_tokens$"):
        refuse_unsupported({"num_predict": 5})


def test_fields_of_nobody_are_unknown_and_those_of_the_caller_are_not():
    assert unknown_fields({"wibble": 1, "mine": 2, "user": "u", "min_p": 0}, frozenset({"mine"})) == ("wibble",)


def test_every_field_is_decided_about_once():
    tables = [NEUTRAL.keys(), GOVERNED.keys(), INERT, GENERATION_FIELDS, {"n"}]
    assert sum(map(len, tables)) == len(set().union(*tables))
    assert NEUTRAL.keys() >= INSTEAD.keys()
    assert all(NEUTRAL.keys() >= set(governors) for governors in GOVERNED.values())
