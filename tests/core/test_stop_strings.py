"""Stop strings: for every split of a text the shown text is the same and holds nothing of a stop string."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from lattice_core.stop_strings import StopStrings

ALPHABET = st.text(alphabet="ab日", max_size=12)


def expected(text: str, stops: list[str]) -> tuple[str, str | None]:
    found = [(text.find(stop), -len(stop), stop) for stop in stops if stop in text]
    if not found:
        return text, None
    # The earliest end is seen first when text comes piece by piece; with the text whole it is the earliest beginning.
    at, _, stop = min(found)
    return text[:at], stop


@given(text=ALPHABET, stops=st.lists(st.text(alphabet="ab日", min_size=1, max_size=4), max_size=3))
def test_whole_text_ends_before_the_earliest_match(text, stops):
    matcher = StopStrings(stops)
    shown = matcher.push(text)
    if matcher.matched is None:
        shown += matcher.finish()
    assert (shown, matcher.matched is not None) == (expected(text, stops)[0], expected(text, stops)[1] is not None)


@given(
    text=ALPHABET,
    stop=st.text(alphabet="ab日", min_size=1, max_size=4),
    cuts=st.lists(st.integers(0, 12), max_size=6),
)
def test_every_split_shows_what_the_whole_text_shows(text, stop, cuts):
    edges = sorted({0, len(text), *(cut for cut in cuts if cut <= len(text))})
    matcher = StopStrings([stop])
    shown = "".join(matcher.push(text[a:b]) for a, b in pairwise(edges))
    if matcher.matched is None:
        shown += matcher.finish()
    assert shown == expected(text, [stop])[0]


def test_text_that_cannot_begin_a_stop_string_is_not_held_back():
    matcher = StopStrings(["STOP"])
    assert matcher.push("hello ST") == "hello "
    assert matcher.push("ILL") == "STILL"


def test_nothing_is_shown_after_a_match():
    matcher = StopStrings(["x"])
    assert matcher.push("axb") == "a"
    assert (matcher.matched, matcher.push("more"), matcher.finish()) == ("x", "", "")


def test_a_near_miss_that_begins_the_stop_string_again_is_found():
    matcher = StopStrings(["aab"])
    assert "".join(matcher.push(letter) for letter in "aaab") == "a"
    assert matcher.matched == "aab"
