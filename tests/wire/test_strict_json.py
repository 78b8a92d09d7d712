import pytest

from lattice_core.wire import JSONSyntaxError, load_json


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "line 1, column 1"),
        (b"{", "line 1"),
        (b'{"a":1,}', "line 1"),
        (b'{"a":1} x', "line 1, column 9"),
        (b'{"temperature": NaN}', "NaN is no JSON number"),
        (b'{"temperature": -Infinity}', "-Infinity is no JSON number"),
        (b'{"temperature": 1e400}', "out of range"),
        (b'{"a":1,"b":2,"a":3}', '"a" stands twice'),
        (b'{"o":{"x":1,"x":1}}', '"x" stands twice'),
        (b'{"a":"\xff"}', "not UTF-8 at byte 6"),
        ('{"a":1}'.encode("utf-16"), "not UTF-8"),
        (b'\xef\xbb\xbf{"a":1}', "line 1"),
        (b'{"a":"\\ud800"}', "surrogate"),
        (b"[" * 100_000, "nested too deeply"),
        (b"1" * 5000, "too many digits"),
        (b'{"a":"\n"}', "line 1"),
    ],
)
def test_what_is_no_json_is_refused_without_a_parsers_words(data, says):
    with pytest.raises(JSONSyntaxError) as caught:
        load_json(data)
    assert says in str(caught.value)


def test_json_is_read():
    text = '{"a": [1, 2.5, null, true, "é", "\\ud83d\\ude00"], "b": {"a": 1}}'
    assert load_json(text.encode()) == {"a": [1, 2.5, None, True, "é", "😀"], "b": {"a": 1}}
