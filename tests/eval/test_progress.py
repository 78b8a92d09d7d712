from io import StringIO

from lattice_eval.progress import BarProgress, PlainProgress, progress_on


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def test_elsewhere_than_on_a_terminal_lines_come_ten_seconds_apart_at_least():
    stream, clock = StringIO(), Clock()
    with PlainProgress(stream, clock) as progress:
        for second in range(0, 31, 4):
            clock.now = float(second)
            progress.report("scoring", second, 40, "perplexity 15.2")
    assert stream.getvalue().splitlines() == [
        "[lattice] scoring: 30%, perplexity 15.2",
        "[lattice] scoring: 60%, perplexity 15.2",
    ]


def test_a_terminal_gets_a_bar_with_the_running_figure():
    class Terminal(StringIO):
        def isatty(self):
            return True

    stream = Terminal()
    progress = progress_on(stream)
    assert isinstance(progress, BarProgress)
    with progress:
        progress.report("loading", 1, 2)
        progress.report("scoring", 3, 4, "perplexity 15.2")
    assert "perplexity 15.2" in stream.getvalue()


def test_what_is_no_terminal_gets_lines():
    assert isinstance(progress_on(StringIO()), PlainProgress)
