import pytest

from lattice_core.errors import RequestError
from lattice_core.wire import get_bool, get_int, get_number, get_object, get_text, shown

READERS = {
    "bool": lambda body: get_bool(body, "x", default=False),
    "int": lambda body: get_int(body, "x", low=1, high=9),
    "open int": lambda body: get_int(body, "x", low=1),
    "number": lambda body: get_number(body, "x", low=0, high=1),
    "number above": lambda body: get_number(body, "x", low=0, high=1, above=True),
    "text": lambda body: get_text(body, "x"),
    "object": lambda body: get_object(body, "x"),
}


@pytest.mark.parametrize("kind", READERS)
def test_null_is_the_same_as_absent(kind):
    assert READERS[kind]({"x": None}) == READERS[kind]({})
    assert not READERS[kind]({})


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("bool", True),
        ("int", 1),
        ("int", 9),
        ("open int", 10**400),
        ("number", 0),
        ("number", 1),
        ("number above", 1e-300),
        ("text", ""),
        ("object", {}),
    ],
)
def test_values_up_to_the_limits_are_read(kind, value):
    assert READERS[kind]({"x": value}) == value


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        ("bool", "true", '`x` must be true or false, not a string: "true"'),
        ("bool", 1, "`x` must be true or false, not an integer: 1"),
        ("int", True, "`x` must be an integer, not a boolean: true"),
        ("int", 1.0, "`x` must be an integer, not a number: 1.0"),
        ("int", 0, "`x` is 0; it must be from 1 to 9"),
        ("int", 10, "`x` is 10; it must be from 1 to 9"),
        ("open int", 0, "`x` is 0; it must be at least 1"),
        ("number", "hot", '`x` must be a number, not a string: "hot"'),
        ("number", 1.5, "`x` is 1.5; it must be from 0 to 1"),
        ("number", float("nan"), "`x` is NaN; it must be from 0 to 1"),
        ("number above", 0, "`x` is 0; it must be above 0 and at most 1"),
        ("text", [1, 2], "`x` must be a string, not an array of 2"),
        ("object", [], "`x` must be an object, not an array of 0"),
    ],
)
def test_another_type_or_value_is_an_error_that_names_field_value_and_limit(kind, value, message):
    with pytest.raises(RequestError) as caught:
        READERS[kind]({"x": value})
    assert (caught.value.message, caught.value.param) == (message, "x")


@pytest.mark.parametrize("value", ["\x1b[31m\n" + "é" * 1000, 10**400, ["x" * 1000], {"k": "v" * 1000}])
def test_a_value_is_shown_as_one_short_line_of_ascii(value):
    text = shown(value)
    assert len(text) <= 60
    assert text.isascii()
    assert text.isprintable()
