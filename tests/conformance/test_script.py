import pytest

from lattice_conformance.script import DEFAULT_REPLY, read_script
from lattice_conformance.scripted_tokenizer import IM_END_ID, IM_START_ID


def script_of(text, limit=1000):
    return read_script(tuple(text.encode()), limit)


def turn(role, text):
    return (IM_START_ID, *f"{role}\n{text}".encode(), IM_END_ID, *b"\n")


@pytest.mark.parametrize(
    ("text", "reply"),
    [
        ("no directive", DEFAULT_REPLY),
        ("please [[say:yes]] now", "yes"),
        ("[[say:]]", ""),
        ("[[say:two\nlines]]", "two\nlines"),
        ("[[say:é☃]]", "é☃"),
        ("[[repeat:4]]", "xxxx"),
        ("[[repeat:0]]", ""),
        ("[[say:a]][[repeat:2]][[say:b]]", "axxb"),
        ("[[echo]] me", "[[echo]] me"),
        ("[[unknown:1]] [[repeat:many]] [say:no]", DEFAULT_REPLY),
    ],
)
def test_the_reply_is_what_the_directives_say(text, reply):
    assert script_of(text).reply == reply.encode()


def test_the_reply_ends_with_the_end_of_sequence_for_ever():
    script = script_of("[[say:ab]]")
    assert [script.token(k) for k in range(5)] == [ord("a"), ord("b"), IM_END_ID, IM_END_ID, IM_END_ID]


def test_a_number_in_a_prompt_allocates_no_more_than_the_context():
    assert script_of("[[repeat:999999999]]", limit=50).reply == b"x" * 50


def test_failures_and_delays_are_read():
    script = script_of("[[fail:3]][[delay:20]][[prefill-delay:5]][[hang]]")
    assert (script.fail_at, script.decode_delay, script.prefill_delay, script.hang) == (3, 0.02, 0.005, True)
    assert script_of("[[fail-prefill]]").fail_at == 0
    assert script_of("hello").fail_at is None


def test_only_the_last_user_turn_of_a_chat_speaks():
    history = turn("user", "[[say:first]][[fail:0]]") + turn("assistant", "first")
    opening = (IM_START_ID, *b"assistant\n")
    assert read_script(history + turn("user", "[[say:second]]") + opening, 100).reply == b"second"
    assert read_script(history + turn("user", "hm") + opening, 100).reply == DEFAULT_REPLY.encode()
    assert read_script(history + turn("user", "hm") + opening, 100).fail_at is None


def test_echo_writes_the_whole_conversation():
    prompt = turn("system", "be brief") + turn("user", "[[echo]]")
    expected = "<|im_start|>system\nbe brief<|im_end|>\n<|im_start|>user\n[[echo]]<|im_end|>\n"
    assert read_script(prompt, 1000).reply == expected.encode()
