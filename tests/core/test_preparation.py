import threading

import pytest

from lattice_core.errors import LatticeError, ModelError, RequestError, ShuttingDownError
from lattice_core.preparation import PreparationPool


@pytest.fixture
def pool():
    made = PreparationPool()
    yield made
    made.close()


def test_the_result_comes_from_another_thread(pool):
    assert pool.run("naming", lambda: threading.current_thread().name, 10).startswith("lattice-prepare")


def test_errors_of_lattice_pass_and_others_are_named(pool):
    with pytest.raises(ModelError, match="as it is"):
        pool.run("work", lambda: raise_(ModelError("as it is")), 10)
    for fault in (KeyError("x"), TimeoutError("its own"), SystemExit(3)):
        with pytest.raises(LatticeError, match="work failed") as caught:
            pool.run("work", lambda fault=fault: raise_(fault), 10)
        assert type(fault).__name__ in caught.value.detail


def test_what_takes_too_long_is_given_up_and_its_result_handed_over(pool):
    proceed, late = threading.Event(), []
    came = threading.Event()
    with pytest.raises(RequestError, match=r"work took longer than 0\.01 s and was given up"):
        pool.run("work", lambda: proceed.wait(10) and "late", 0.01, late=lambda result: (late.append(result), came.set()))
    proceed.set()
    assert came.wait(10)
    assert late == ["late"]


def test_a_closed_pool_refuses_work_and_what_waits_in_it():
    pool = PreparationPool()
    proceed, begun, errors = threading.Event(), threading.Semaphore(0), []

    def busy():
        begun.release()
        return proceed.wait(10)

    def wait_in_line():
        try:
            pool.run("work", busy, 10)
        except LatticeError as error:
            errors.append(error)

    threads = [threading.Thread(target=wait_in_line) for _ in range(8)]
    for thread in threads:
        thread.start()
    for _ in range(4):
        assert begun.acquire(timeout=10)
    while pool._pool._work_queue.qsize() < 4:
        threads[0].join(0.001)
    pool.close()
    proceed.set()
    for thread in threads:
        thread.join(10)
    assert [type(error) for error in errors] == [ShuttingDownError] * 4
    with pytest.raises(ShuttingDownError):
        pool.run("work", busy, 10)


def raise_(error):
    raise error
