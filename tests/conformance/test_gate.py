import os
from threading import Thread

import pytest

from lattice_conformance.gate import FifoGate, Gate
from lattice_core.errors import ModelError


@pytest.fixture
def started():
    """Starts threads that end with the test."""
    threads = []

    def start(target):
        threads.append(Thread(target=target, daemon=True))
        threads[-1].start()
        return threads[-1]

    yield start
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()


def test_a_gate_lets_as_many_through_as_it_permits(started):
    gate, passed = Gate(), []

    def walk():
        for step in range(5):
            gate.take()
            passed.append(step)

    started(walk)
    assert gate.wait_blocked()
    assert passed == []
    gate.permit(2)
    assert gate.wait_blocked()
    assert passed == [0, 1]
    gate.permit()
    assert gate.wait_blocked()
    assert passed == [0, 1, 2]
    gate.open()


def test_permits_given_ahead_are_kept(started):
    gate = Gate()
    gate.permit(3)
    started(lambda: [gate.take() for _ in range(4)])
    assert gate.wait_blocked()
    assert gate.blocked
    gate.permit()


def test_an_open_gate_blocks_nobody():
    gate = Gate()
    gate.open()
    for _ in range(100):
        gate.take()
    assert not gate.wait_blocked(timeout=0.01)


def test_a_fifo_gate_takes_one_byte_for_one_token(tmp_path, started):
    path = tmp_path / "gate"
    os.mkfifo(path)
    gate, passed = FifoGate(path), []
    # Two writers one after the other: the end of the first is no end of the gate.
    for content in (b"..", b"."):
        with path.open("wb") as writer:
            writer.write(content)
    thread = started(lambda: [passed.append(gate.take()) for _ in range(3)])
    thread.join(10)
    assert len(passed) == 3
    gate.close()


def test_a_gate_that_is_no_fifo_is_refused(tmp_path):
    with pytest.raises(ModelError, match="make it with mkfifo first"):
        FifoGate(tmp_path / "missing")
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelError, match="is no FIFO"):
        FifoGate(tmp_path / "file")
