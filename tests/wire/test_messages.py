import pytest

from lattice_core.errors import RequestError, UnsupportedFeatureError
from lattice_core.types import Message
from lattice_core.wire import read_messages

USER = {"role": "user", "content": "hi"}


def refused(given):
    with pytest.raises(RequestError) as caught:
        read_messages({"messages": given})
    return caught.value


def test_text_parts_are_joined_and_what_no_prompt_needs_is_left_out():
    messages, unknown = read_messages(
        {
            "messages": [
                {"role": "developer", "content": "be brief"},
                {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "name": "Bo"},
                {"role": "assistant", "content": "", "tool_calls": None, "refusal": None, "audio": None},
            ]
        }
    )
    assert messages == (Message("developer", "be brief"), Message("user", "ab"), Message("assistant", ""))
    assert unknown == ()


def test_members_that_nobody_knows_are_named_once():
    assert read_messages({"messages": [{**USER, "mood": 1}, {**USER, "mood": 2, "tone": 3}]})[1] == (
        "messages[].mood",
        "messages[].tone",
    )


def test_absent_messages_are_named():
    with pytest.raises(RequestError, match="`messages` is missing") as caught:
        read_messages({})
    assert caught.value.param == "messages"


def test_4096_messages_are_allowed_and_one_more_is_not():
    assert len(read_messages({"messages": [USER] * 4096})[0]) == 4096
    assert "holds 4097 messages; at most 4096" in refused([USER] * 4097).message


@pytest.mark.parametrize(
    ("given", "param", "says"),
    [
        ([], "messages", "must not be empty"),
        ("hi", "messages", 'must be an array, not a string: "hi"'),
        (["hi"], "messages[0]", "must be an object"),
        ([USER, {"role": "user"}], "messages[1].content", "must be a string or an array of text parts, not null"),
        ([{"role": "user", "content": 3}], "messages[0].content", "not an integer: 3"),
        ([{"role": "user", "content": []}], "messages[0].content", "must not be an empty array"),
        ([{"role": "user", "content": ["x"]}], "messages[0].content[0]", "must be an object"),
        ([{"role": "user", "content": [{}]}], "messages[0].content[0].type", "must be a string, not null"),
        ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content[0].text", "must be a string, not null"),
        ([{"content": "x"}], "messages[0].role", "must be a string, not null"),
        ([{"role": "bot", "content": "x"}], "messages[0].role", "use system, developer, user or assistant"),
    ],
)
def test_a_wrong_message_is_named_by_its_place(given, param, says):
    error = refused(given)
    assert (type(error), error.param) == (RequestError, param)
    assert error.message.startswith(f"`{param}` ")
    assert says in error.message


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ({"role": "tool", "content": "x"}, "messages[0].role"),
        ({"role": "user", "content": [{"type": "image_url"}]}, "messages[0].content[0].type"),
        ({"role": "assistant", "content": "x", "tool_calls": [{}]}, "messages[0].tool_calls"),
    ],
)
def test_what_needs_tools_or_images_is_refused_as_not_supported(message, param):
    error = refused([message])
    assert (type(error), error.param) == (UnsupportedFeatureError, param)
