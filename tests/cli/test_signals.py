import shlex
import signal
import subprocess
import threading

import pytest

from lattice_core.cli.signals import Stop


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_asks_the_frontend_to_stop(lattice, number):
    process = lattice.start("--probe-do", "wait")
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert out == "stopping True ['callback']\n"
    assert process.returncode == 0
    assert "Traceback" not in err


def test_the_second_signal_ends_the_process_at_once(lattice):
    process = lattice.start("--probe-do", "ignore")
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "asked\n"
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == 130


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_while_the_model_loads_ends_the_process(lattice, number, status):
    process = lattice.start("--scripted-load-delay", "60")
    assert "loading model" in process.stderr.readline()
    process.send_signal(number)
    _, err = process.communicate(timeout=30)
    assert process.returncode == status
    assert "Traceback" not in err


def test_a_reader_that_has_gone_ends_the_process_quietly(lattice):
    process = lattice.start("--probe-do", "count")
    process.stdout.readline()
    process.stdout.close()
    err = process.stderr.read()
    process.stderr.close()
    assert process.wait(30) == 0
    assert "Traceback" not in err
    assert "BrokenPipe" not in err


def test_a_list_into_a_closed_pipe_ends_quietly(lattice):
    process = subprocess.Popen(
        lattice.command("plugins", "--json"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=lattice.cwd,
        env=lattice.environ,
    )
    process.stdout.close()
    err = process.stderr.read()
    process.stderr.close()
    assert process.wait(30) == 0
    assert err == ""


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_a_process_without_stdout_or_stderr_works(lattice, closed):
    command = f"{shlex.join(lattice.command('--frontend', 'probe', '--backend', 'scripted'))} {closed}"
    done = subprocess.run(command, shell=True, check=False, cwd=lattice.cwd, env=lattice.environ, timeout=60)
    assert done.returncode == 0


# ------------------------------------------------------------------------------------------------ the signal object


def test_callbacks_run_once_when_the_signal_is_set():
    stop, calls = Stop(), []
    stop.add_callback(lambda: calls.append(1))
    assert not stop.is_set()
    assert stop.wait(0) is False
    stop.set()
    stop.set()
    assert calls == [1]
    assert stop.wait(0) is True


def test_a_callback_that_comes_late_runs_at_once():
    stop, calls = Stop(), []
    stop.set()
    stop.add_callback(lambda: calls.append(1))
    assert calls == [1]


def test_a_callback_may_add_another():
    stop, calls = Stop(), []
    stop.add_callback(lambda: stop.add_callback(lambda: calls.append(1)))
    stop.set()
    assert calls == [1]


def test_a_waiting_thread_is_woken():
    stop = Stop()
    woken = threading.Event()

    def wait():
        stop.wait()
        woken.set()

    thread = threading.Thread(target=wait)
    thread.start()
    stop.set()
    assert woken.wait(10)
    thread.join()
