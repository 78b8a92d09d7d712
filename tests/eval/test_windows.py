from hypothesis import given
from hypothesis import strategies as st

from lattice_eval.windows import Window, windows_of

SIZES = st.integers(2, 40).flatmap(lambda window: st.tuples(st.just(window), st.integers(1, window)))


def test_windows_begin_every_stride_tokens_and_score_what_none_before_reached():
    assert list(windows_of(10, 4, 2)) == [Window(0, 1, 4), Window(2, 4, 6), Window(4, 6, 8), Window(6, 8, 10)]


def test_a_text_that_fits_into_the_window_is_one_window():
    assert list(windows_of(5, 8, 4)) == [Window(0, 1, 5)]
    assert list(windows_of(8, 8, 4)) == [Window(0, 1, 8)]


def test_the_last_window_scores_what_is_left():
    assert list(windows_of(7, 4, 2))[-1] == Window(4, 6, 7)


@given(SIZES, st.integers(2, 200))
def test_every_token_but_the_first_is_scored_once_with_enough_before_it(sizes, count):
    window, stride = sizes
    found = list(windows_of(count, window, stride))
    scored = [token for item in found for token in range(item.first_scored, item.stop)]
    left_out = range(0, count, stride) if stride == window else (0,)
    assert scored == [token for token in range(count) if token not in left_out]
    for item in found:
        assert 0 < item.stop - item.start <= window
        assert item.scored > 0
        assert item.start == 0 or item.first_scored - item.start >= max(1, window - stride)
