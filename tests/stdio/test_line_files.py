from __future__ import annotations

import os
import threading

import pytest

from lattice_stdio.line_input import LineInput, LineTooLongError
from lattice_stdio.line_output import LineOutput, OutputClosedError
from lattice_stdio.wake import Wake


@pytest.fixture
def wake():
    with Wake() as made:
        yield made


@pytest.fixture
def pipe():
    ends = list(os.pipe())

    def close(end):
        if ends[end] >= 0:
            os.close(ends[end])
            ends[end] = -1

    yield (*ends, close)
    close(0)
    close(1)


def everything(lines):
    found = []
    while (line := lines.read_line()) is not None:
        found.append(line)
    return found


def test_lines_come_without_their_line_break_and_the_last_needs_none(pipe, wake):
    reader, writer, close = pipe
    os.write(writer, b"a\n\nb b\r\nlast")
    close(1)
    assert everything(LineInput(reader, wake)) == [b"a", b"", b"b b\r", b"last"]


def test_a_line_longer_than_the_limit_is_skipped_wherever_the_blocks_end(pipe, wake):
    reader, writer, close = pipe
    lines = LineInput(reader, wake, limit=5)
    for piece in (b"12345\n", b"123456\nok\n", b"1234567", b"89", b"0123456789", b"\nend"):
        os.write(writer, piece)
    close(1)
    assert lines.read_line() == b"12345"
    with pytest.raises(LineTooLongError, match="longer than 5 bytes"):
        lines.read_line()
    assert lines.read_line() == b"ok"
    with pytest.raises(LineTooLongError):
        lines.read_line()
    assert everything(lines) == [b"end"]


def test_a_long_last_line_is_an_error_and_then_the_end(pipe, wake):
    reader, writer, close = pipe
    os.write(writer, b"123456")
    close(1)
    lines = LineInput(reader, wake, limit=5)
    with pytest.raises(LineTooLongError):
        lines.read_line()
    assert lines.read_line() is None


def test_a_wait_ends_when_woken_and_lines_that_are_there_are_still_given(pipe, wake):
    reader, writer, _ = pipe
    os.write(writer, b"a\nb\nc")
    lines = LineInput(reader, wake)
    assert lines.read_line() == b"a"
    threading.Timer(0.05, wake.set).start()
    assert everything(lines) == [b"b"]
    assert lines.read_line() is None


def test_an_input_that_cannot_be_read_has_ended(wake, tmp_path):
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        assert LineInput(folder, wake).read_line() is None
    finally:
        os.close(folder)
    assert LineInput(-1, wake).read_line() is None
    assert LineInput(-1, wake).read_all() == b""


def test_a_whole_input_has_the_same_limit(pipe, wake):
    reader, writer, close = pipe
    os.write(writer, b"ab\ncd\n")
    lines = LineInput(reader, wake, limit=6)
    close(1)
    assert lines.read_all() == b"ab\ncd\n"


def test_a_whole_input_above_the_limit_is_an_error(pipe, wake):
    reader, writer, _ = pipe
    os.write(writer, b"1234567")
    with pytest.raises(LineTooLongError):
        LineInput(reader, wake, limit=6).read_all()


def test_output_that_nobody_can_read_is_closed(pipe, wake):
    _, writer, close = pipe
    close(0)
    with pytest.raises(OutputClosedError, match="Broken pipe"):
        LineOutput(writer, wake).write(b"x")
    with pytest.raises(OutputClosedError, match="never open"):
        LineOutput(-1, wake).write(b"x")


def test_a_long_output_arrives_whole(pipe, wake):
    reader, writer, close = pipe
    data = os.urandom(1_000_000)
    received = []

    def read():
        while block := os.read(reader, 10_000):
            received.append(block)

    thread = threading.Thread(target=read)
    thread.start()
    LineOutput(writer, wake).write(data)
    close(1)
    thread.join()
    assert b"".join(received) == data


def test_a_full_pipe_is_given_up_only_after_the_wake(pipe, wake):
    _, writer, _ = pipe
    threading.Timer(0.05, wake.set).start()
    with pytest.raises(OutputClosedError, match="nobody reads it"):
        LineOutput(writer, wake).write(b"x" * 1_000_000)
    assert wake.is_set()


def test_waking_twice_or_after_the_end_does_nothing():
    wake = Wake()
    wake.set()
    wake.set()
    wake.close()
    wake.close()
    wake.set()
