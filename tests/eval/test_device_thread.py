import threading

import pytest

from lattice_eval.device_thread import run_on_device_thread


def test_reports_arrive_on_the_calling_thread_and_the_work_has_its_own():
    threads, seen = [], []

    def work(report):
        threads.append(threading.current_thread())
        report(1, "a")
        report(2)
        return "done"

    def on_report(*values):
        assert threading.current_thread() is threading.main_thread()
        seen.append(values)

    assert run_on_device_thread(work, on_report) == "done"
    assert seen == [(1, "a"), (2,)]
    assert threads[0] is not threading.main_thread()


def test_an_error_of_the_work_is_raised_to_the_caller():
    def work(_report):
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        run_on_device_thread(work, lambda: None)


def test_work_ends_at_its_next_report_after_the_caller_was_interrupted():
    ended = threading.Event()
    first_seen = threading.Event()

    def work(report):
        try:
            report(0)
            first_seen.wait(30)
            while True:
                report(1)
        finally:
            ended.set()

    def on_report(value):
        assert value in (0, 1)
        first_seen.set()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_on_device_thread(work, on_report)
    assert ended.wait(30)
