import pytest

from lattice_core.descriptors import Settings
from lattice_core.errors import RequestError, UnsupportedFeatureError
from lattice_core.options.core_options import CORE_OPTIONS
from lattice_core.types import GenerationRequest, GrammarRequest, Message, SamplingParams
from lattice_core.wire import ConflictingFieldsError, RequestDefaults, read_generation

CORE = {option.name: option.default for option in CORE_OPTIONS}
DEFAULTS = RequestDefaults.from_settings(Settings(core=CORE | {"seed": 5}))


def read(defaults=DEFAULTS, **body):
    return read_generation(body, defaults)


def refused(**body):
    with pytest.raises(RequestError) as caught:
        read(**body)
    return caught.value


def test_defaults_are_those_of_the_cores_options():
    assert (DEFAULTS.max_tokens, DEFAULTS.explicit) == (512, frozenset())
    assert DEFAULTS.sampling == SamplingParams(0.7, 50, 0.9, 1.1, 5)


def test_what_the_operator_set_is_told_from_defaults():
    sources = {"max-tokens": "flag", "top-k": "default", "seed": "environment"}
    assert RequestDefaults.from_settings(Settings(core=CORE, sources=sources)).explicit == {"max-tokens", "seed"}


def test_messages_prompt_and_model_are_the_callers():
    messages = (Message("user", "hi"),)
    expected = GenerationRequest(messages=messages, model="m", max_tokens=512, sampling=DEFAULTS.sampling)
    assert read_generation({}, DEFAULTS, messages=messages, model="m") == expected
    assert read_generation({}, DEFAULTS, prompt="p").prompt == "p"


def test_every_field_is_read():
    assert read(
        max_tokens=7,
        temperature=0,
        top_p=1,
        top_k=3,
        repetition_penalty=1.5,
        seed=2**64 - 1,
        stop=["a", "b"],
        response_format={"type": "regex", "regex": "[0-9]+"},
        chat_template_kwargs={"enable_thinking": False},
    ) == GenerationRequest(
        max_tokens=7,
        sampling=SamplingParams(0.0, 3, 1.0, 1.5, 2**64 - 1),
        stop=("a", "b"),
        grammar=GrammarRequest("regex", "[0-9]+"),
        template_options={"enable_thinking": False},
    )


@pytest.mark.parametrize("body", [{"max_completion_tokens": 3}, {"max_tokens": 3, "max_completion_tokens": 3}])
def test_max_completion_tokens_is_max_tokens(body):
    assert read(**body).max_tokens == 3


def test_two_limits_that_differ_are_a_conflict_that_names_both():
    error = refused(max_tokens=3, max_completion_tokens=4)
    assert (type(error), error.param) == (ConflictingFieldsError, "max_completion_tokens")
    assert error.message == "`max_tokens` is 3 and `max_completion_tokens` is 4; send one of them"


def test_a_huge_max_tokens_and_a_huge_top_k_are_no_error():
    request = read(max_tokens=2**31 - 1, top_k=10**30)
    assert (request.max_tokens, request.sampling.top_k) == (2**31 - 1, 2**31 - 1)


@pytest.mark.parametrize(("seed", "expected"), [(None, 5), (-1, None), (0, 0), (-2, 2**64 - 2), (2**63, 2**63)])
def test_seed_minus_one_is_random_and_other_negative_ones_are_64_bit(seed, expected):
    assert read(seed=seed).sampling.seed == expected


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("max_tokens", 0, "is 0; it must be at least 1"),
        ("max_completion_tokens", -5, "is -5; it must be at least 1"),
        ("temperature", -0.1, "is -0.1; it must be from 0 to 2"),
        ("temperature", 2.5, "is 2.5; it must be from 0 to 2"),
        ("temperature", 10**400, "it must be from 0 to 2"),
        ("top_p", 0, "is 0; it must be above 0 and at most 1"),
        ("top_p", 1.5, "is 1.5; it must be above 0 and at most 1"),
        ("top_k", -1, "is -1; it must be at least 0"),
        ("repetition_penalty", 0, "is 0; it must be from 0.01 to 100"),
        ("repetition_penalty", 1e30, "is 1e+30; it must be from 0.01 to 100"),
        ("seed", 2**64, "must be from -9223372036854775808 to 18446744073709551615"),
        ("seed", -(2**63) - 1, "must be from -9223372036854775808 to 18446744073709551615"),
        ("seed", 1.0, "must be an integer"),
        ("stop", 1, "must be a string or an array of strings"),
        ("stop", [], "holds 0 strings; 1 to 4 are allowed"),
        ("stop", list("abcde"), "holds 5 strings; 1 to 4 are allowed"),
        ("stop", ["x" * 4096, "y" * 4096, "z"], "has 8193 bytes together; at most 8192 are allowed"),
        ("chat_template_kwargs", [1], "must be an object, not an array of 1"),
        ("response_format", "json", "must be an object, not a string"),
    ],
)
def test_a_wrong_type_or_value_is_an_error_that_names_field_and_limit(field, value, says):
    error = refused(**{field: value})
    assert (type(error), error.param) == (RequestError, field)
    assert error.message.startswith(f"`{field}` ")
    assert says in error.message


@pytest.mark.parametrize(
    ("stop", "says"),
    [
        ("", "`stop[0]` has 0 bytes; 1 to 4096 are allowed"),
        (["a", ""], "`stop[1]` has 0 bytes; 1 to 4096 are allowed"),
        ("é" * 2049, "`stop[0]` has 4098 bytes; 1 to 4096 are allowed"),
        (["a", 5], "`stop[1]` must be a string, not an integer: 5"),
    ],
)
def test_every_stop_string_has_its_limits(stop, says):
    assert refused(stop=stop).message == says


def test_stop_strings_at_the_limits_are_allowed():
    assert read(stop=["a" * 4096, "b" * 4096]).stop == ("a" * 4096, "b" * 4096)


@pytest.mark.parametrize(
    ("response_format", "grammar"),
    [
        ({"type": "text"}, None),
        ({"type": "json_object"}, GrammarRequest("json_object", None)),
        ({"type": "regex", "regex": "[0-9]+"}, GrammarRequest("regex", "[0-9]+")),
        (
            {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}},
            GrammarRequest("json_schema", {"name": "n", "schema": {"type": "object"}}),
        ),
        ({"type": "type"}, GrammarRequest("type", None)),
    ],
)
def test_a_response_format_names_a_grammar_and_holds_its_spec(response_format, grammar):
    assert read(response_format=response_format).grammar == grammar


@pytest.mark.parametrize(
    ("response_format", "kind", "param"),
    [
        ({}, RequestError, "response_format.type"),
        ({"type": 3}, RequestError, "response_format.type"),
        ({"type": "json_schema"}, RequestError, "response_format.json_schema.schema"),
        ({"type": "json_schema", "json_schema": {"schema": 42}}, RequestError, "response_format.json_schema.schema"),
        ({"type": "regex", "regex": "a", "strict": True}, UnsupportedFeatureError, "response_format"),
    ],
)
def test_a_response_format_without_type_or_schema_or_with_more_is_refused(response_format, kind, param):
    error = refused(response_format=response_format)
    assert (type(error), error.param) == (kind, param)


def test_a_constrained_answer_has_no_default_penalty_and_the_rest_of_the_context():
    request = read(response_format={"type": "json_object"})
    assert (request.max_tokens, request.sampling.repetition_penalty) == (None, 1.0)
    assert read(response_format={"type": "text"}) == read()


def test_a_constrained_answer_keeps_what_the_operator_or_the_client_set():
    body = {"response_format": {"type": "json_object"}}
    by_operator = RequestDefaults(
        9, SamplingParams(repetition_penalty=1.2), explicit=frozenset({"max-tokens", "repetition-penalty"})
    )
    request = read(by_operator, **body)
    assert (request.max_tokens, request.sampling.repetition_penalty) == (9, 1.2)
    request = read(max_tokens=4, repetition_penalty=1.3, **body)
    assert (request.max_tokens, request.sampling.repetition_penalty) == (4, 1.3)
