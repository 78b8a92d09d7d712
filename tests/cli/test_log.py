import io
import logging

import pytest

from lattice_core.cli.log import LoadingProgress, is_debugging, set_up_logging


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def stderr(monkeypatch):
    def use(stream):
        monkeypatch.setattr("sys.stderr", stream)
        return stream

    return use


@pytest.fixture(autouse=True)
def level():
    yield
    set_up_logging(debug=False)


def test_messages_are_plain_lines_and_their_level_shows_where_it_matters(stderr):
    written = stderr(io.StringIO())
    set_up_logging(debug=False)
    set_up_logging(debug=False)
    log = logging.getLogger("lattice.some.part")
    log.debug("unseen")
    log.info("plain")
    log.warning("watch out")
    assert written.getvalue() == "[lattice] plain\n[lattice] warning: watch out\n"


def test_debugging_shows_debug_messages(stderr):
    written = stderr(io.StringIO())
    set_up_logging(debug=True)
    assert is_debugging()
    logging.getLogger("lattice").debug("seen")
    assert written.getvalue() == "[lattice] debug: seen\n"


def test_a_closed_stderr_breaks_nothing(stderr):
    set_up_logging(debug=False)
    stream = stderr(Terminal())
    progress = LoadingProgress("x")
    progress.begin()
    stream.close()
    progress(1, 2)
    progress.end()
    logging.getLogger("lattice").info("lost")


CLEAR = "\r\x1b[K"


def test_on_a_terminal_a_line_that_rewrites_itself_shows_the_progress_and_vanishes(stderr):
    written = stderr(Terminal())
    set_up_logging(debug=False)
    progress = LoadingProgress("model from /m (gguf Q4_1)")
    progress.begin()
    progress(5, 10)
    progress(6, 10)
    progress.end()
    progress.end()
    assert written.getvalue() == f"[lattice] loading model from /m (gguf Q4_1) ...\n{CLEAR}[lattice]  50%{CLEAR}"


def test_a_message_takes_the_place_of_the_progress_on_a_terminal(stderr):
    written = stderr(Terminal())
    set_up_logging(debug=False)
    progress = LoadingProgress("x")
    progress.begin()
    progress(5, 10)
    logging.getLogger("lattice.mlx").info("the device")
    progress.end()
    assert written.getvalue() == f"[lattice] loading x ...\n{CLEAR}[lattice]  50%{CLEAR}[lattice] the device\n"


def test_elsewhere_loading_is_told_once(stderr):
    written = stderr(io.StringIO())
    set_up_logging(debug=False)
    progress = LoadingProgress("model 'x'")
    progress.begin()
    progress(5, 10)
    progress.end()
    assert written.getvalue() == "[lattice] loading model 'x' ...\n"
