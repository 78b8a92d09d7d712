from __future__ import annotations

import hashlib
import json
import random
import re
import signal

import pytest

from lattice_core.descriptors import Settings
from lattice_core.errors import UsageError
from lattice_core.model_names import lattice_models, resolve_model
from lattice_hub.huggingface import HuggingFaceSource
from lattice_hub.record import read_record
from tests.hub.conftest import SECRET
from tests.hub.hub_server import tiny_safetensors
from tests.hub.loopback import WAIT, Hold, Loopback

REFERENCE = "hf:acme/tiny"
PULLED = ["config.json", "lattice.json", "model.safetensors", "tokenizer.json"]
# Three of the blocks of 10 MiB that the hub's library downloads in.
LARGE = random.Random(7).randbytes(3 * (10 << 20) - 8)
BLOCK = 10 << 20


@pytest.fixture
def lattice(processes, hub, tmp_path):
    def start(*arguments, **environ):
        return processes.lattice(*arguments, **{"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "hf"), **environ})

    return start


@pytest.fixture
def large(hub):
    hub.files = {"big.gguf": LARGE}
    hub.large = {"big.gguf"}
    return hub


def ended(process, status=0):
    stdout, stderr = process.communicate(timeout=WAIT)
    assert process.returncode == status, (stdout, stderr)
    assert SECRET not in stdout + stderr
    assert "Traceback" not in stderr
    return stdout, stderr


def error_of(process, status=1):
    lines = ended(process, status)[1].splitlines()
    assert lines[-1].startswith("lattice: error: "), lines
    assert len(lines) == 1
    return lines[0].removeprefix("lattice: error: ")


def wait_for(process, pattern):
    """Read the process's messages until one matches."""
    for line in process.stderr:
        if re.search(pattern, line):
            return
    pytest.fail(f"it ended without saying {pattern}")


def names_in(directory):
    return sorted(path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file())


def models_in(cache):
    return [name for name, _ in lattice_models({"LATTICE_MODEL_CACHE": str(cache), "HOME": "/nowhere"})]


def test_weights_configuration_and_tokenizer_come_and_neither_code_nor_pickles(lattice, hub, cache):
    stdout, stderr = ended(lattice("pull", REFERENCE))
    directory = cache / "acme--tiny"
    assert stdout == f"{directory}\n"
    assert stderr.splitlines()[-1] == "[lattice] hf:acme/tiny is ready"
    assert names_in(directory) == PULLED
    assert all((directory / name).read_bytes() == content for name, content in hub.files.items() if name in PULLED)
    assert resolve_model("acme/tiny", environ={"LATTICE_MODEL_CACHE": str(cache)}) == directory
    record = read_record(directory)
    assert (record.source, record.reference, record.revision) == ("huggingface", REFERENCE, hub.commit)
    digests = {entry.name: entry.sha256 for entry in record.files}
    assert digests["model.safetensors"] == hashlib.sha256(hub.files["model.safetensors"]).hexdigest()


def test_a_second_pull_downloads_nothing(lattice, hub):
    ended(lattice("pull", REFERENCE))
    before = len(hub.requests)
    _, stderr = ended(lattice("pull", REFERENCE))
    assert stderr == "[lattice] hf:acme/tiny is already there\n"
    assert [path for _, path, _ in hub.requests[before:] if "/resolve/" in path] == []


def test_a_new_commit_brings_only_what_changed(lattice, hub, cache):
    ended(lattice("pull", REFERENCE))
    hub.commit, hub.files["config.json"] = "d" * 40, b'{"architectures": ["Newer"]}'
    before = len(hub.requests)
    ended(lattice("pull", REFERENCE))
    fetched = {path.rpartition("/")[2] for _, path, _ in hub.requests[before:] if "/resolve/" in path}
    assert fetched == {"config.json"}
    assert (cache / "acme--tiny" / "config.json").read_bytes() == hub.files["config.json"]
    assert read_record(cache / "acme--tiny").revision == "d" * 40
    assert (cache / "acme--tiny" / "model.safetensors").read_bytes() == hub.files["model.safetensors"]


def test_a_later_include_adds_files_and_keeps_the_earlier_ones(lattice, hub, cache):
    hub.files = {"a-Q4_0.gguf": b"four", "a-Q8_0.gguf": b"eight"}
    message = error_of(lattice("pull", REFERENCE), status=2)
    assert "has 2 GGUF models: a-Q4_0.gguf (4 B), a-Q8_0.gguf (5 B); choose with --include" in message
    ended(lattice("pull", REFERENCE, "--include", "*Q4_0*"))
    assert names_in(cache / "acme--tiny") == ["a-Q4_0.gguf", "lattice.json"]
    ended(lattice("pull", REFERENCE, "--include", "*Q8_0*"))
    assert names_in(cache / "acme--tiny") == ["a-Q4_0.gguf", "a-Q8_0.gguf", "lattice.json"]
    assert (len(hub.asked("a-Q4_0.gguf")), len(hub.asked("a-Q8_0.gguf"))) == (1, 1)


def test_verify_repairs_a_damaged_file(lattice, hub, cache):
    ended(lattice("pull", REFERENCE))
    weights = cache / "acme--tiny" / "model.safetensors"
    weights.write_bytes(bytes(len(weights.read_bytes())))
    ended(lattice("pull", REFERENCE, "--verify"))
    assert weights.read_bytes() == hub.files["model.safetensors"]
    assert (len(hub.asked("model.safetensors")), len(hub.asked("config.json"))) == (2, 1)


def test_force_fetches_everything_again(lattice, hub):
    ended(lattice("pull", REFERENCE))
    ended(lattice("pull", REFERENCE, "--force"))
    assert [len(hub.asked(name)) for name in PULLED if name != "lattice.json"] == [2, 2, 2]


def test_files_that_no_pull_put_there_are_never_deleted(lattice, hub, cache):
    ended(lattice("pull", REFERENCE))
    (cache / "acme--tiny" / "notes.txt").write_text("mine")
    hub.commit = "d" * 40
    assert "did not put there (notes.txt): move it away" in error_of(lattice("pull", REFERENCE))
    assert (cache / "acme--tiny" / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("interruption", [signal.SIGKILL, signal.SIGINT])
def test_a_stopped_pull_goes_on_within_the_file(lattice, large, cache, interruption):
    hold = large.hold = Hold("big.gguf", 25 << 20)
    process = lattice("pull", REFERENCE)
    wait_for(process, "downloading acme--tiny: 66%")
    process.send_signal(interruption)
    if interruption == signal.SIGINT:
        _, stderr = ended(process, 130)
        assert stderr.splitlines()[-1].startswith("[lattice] stopped; `lattice pull hf:acme/tiny`")
    else:
        process.wait(WAIT)
    assert models_in(cache) == []
    large.hold = None
    hold.release()
    ended(lattice("pull", REFERENCE))
    first, second = large.asked("big.gguf")
    assert "range" not in first
    assert second["range"] == f"bytes={2 * BLOCK}-"
    assert (cache / "acme--tiny" / "big.gguf").read_bytes() == LARGE
    assert [path.name for path in (cache / ".partial").iterdir()] == ["acme--tiny.lock"]


def stopped_part(lattice, large, cache):
    """Leave a pull behind that was killed in the middle of its file; gives the partial file."""
    hold = large.hold = Hold("big.gguf", 15 << 20)
    process = lattice("pull", REFERENCE)
    wait_for(process, "downloading acme--tiny: 33%")
    process.kill()
    process.wait(WAIT)
    large.hold = None
    hold.release()
    (part,) = (cache / ".partial" / "acme--tiny.pull" / "parts").iterdir()
    assert part.stat().st_size == BLOCK
    return part


def test_a_damaged_partial_file_is_fetched_again_as_a_whole(lattice, large, cache):
    part = stopped_part(lattice, large, cache)
    part.write_bytes(bytes(BLOCK))
    ended(lattice("pull", REFERENCE))
    assert (cache / "acme--tiny" / "big.gguf").read_bytes() == LARGE
    assert [request.get("range") for request in large.asked("big.gguf")] == [None, f"bytes={BLOCK}-", None]


def test_a_server_without_ranges_starts_over(lattice, large, cache):
    stopped_part(lattice, large, cache)
    large.whole = True
    ended(lattice("pull", REFERENCE))
    assert (cache / "acme--tiny" / "big.gguf").read_bytes() == LARGE


def test_a_stopped_pull_is_listed_as_not_complete(lattice, large, cache):
    stopped_part(lattice, large, cache)
    (entry,) = json.loads(ended(lattice("models", "--json"))[0])
    assert (entry["name"], entry["size"]) == ("acme/tiny (partial)", BLOCK)
    assert entry["broken"] == "not complete: `lattice pull hf:acme/tiny` goes on"


def test_a_connection_that_breaks_is_taken_up_in_the_same_pull(lattice, large, cache):
    large.cuts = [12 << 20]
    ended(lattice("pull", REFERENCE))
    assert [request.get("range") for request in large.asked("big.gguf")] == [None, f"bytes={BLOCK}-"]
    assert (cache / "acme--tiny" / "big.gguf").read_bytes() == LARGE


def test_two_pulls_at_once_download_once(lattice, large):
    hold = large.hold = Hold("big.gguf", 15 << 20)
    first = lattice("pull", REFERENCE)
    assert hold.reached.wait(WAIT)
    second = lattice("pull", REFERENCE)
    wait_for(second, "another process is pulling acme--tiny; waiting for it")
    large.hold = None
    hold.release()
    ended(first)
    assert ended(second)[1] == "[lattice] hf:acme/tiny is already there\n"
    assert len(large.asked("big.gguf")) == 1


def test_content_that_is_not_what_was_announced_is_refused(lattice, hub, cache):
    wrong = {"sha256": "e" * 64, "size": len(hub.files["model.safetensors"]), "pointerSize": 130}
    hub.announced["model.safetensors"] = {"lfs": wrong}
    message = error_of_last(lattice("pull", REFERENCE))
    assert "e" * 64 in message
    assert hashlib.sha256(hub.files["model.safetensors"]).hexdigest() in message
    assert models_in(cache) == []


def test_a_file_that_git_keeps_is_checked_too(lattice, hub, cache):
    hub.announced["config.json"] = {"blobId": "1" * 40}
    assert "git-sha1:" + "1" * 40 in error_of_last(lattice("pull", REFERENCE))
    assert models_in(cache) == []


def error_of_last(process):
    line = ended(process, 1)[1].splitlines()[-1]
    assert line.startswith("lattice: error: ")
    return line


def test_more_bytes_than_announced_are_not_written(lattice, hub, cache):
    hub.files["model.safetensors"] = tiny_safetensors(1 << 20)
    hub.announced["model.safetensors"] = {"size": 1000}
    assert "sends more than the announced 1000 bytes" in error_of_last(lattice("pull", REFERENCE))
    assert sum(path.stat().st_size for path in cache.rglob("*") if path.is_file()) < 10_000


@pytest.mark.parametrize("name", ["../../evil.json", "/tmp/evil.json", "a\\..\\evil.json", ".hidden/evil.json", "a//evil.json"])
def test_names_that_leave_the_directory_are_refused(lattice, hub, tmp_path, cache, name):
    hub.files[name] = b"{}"
    message = error_of(lattice("pull", REFERENCE, "--include", "*"))
    assert f"{name!r}, which does not stay inside a model's directory: refused" in message
    assert not any("evil" in path for path in names_in(tmp_path))


@pytest.mark.parametrize(
    ("size", "expected"), [(1 << 50, "at most"), (-5, "said to have -5 bytes"), (1 << 43, "acme--tiny needs 8.8 TB")]
)
def test_absurd_sizes_are_refused_before_the_download(lattice, hub, size, expected):
    hub.announced["model.safetensors"] = {"size": size}
    assert expected in error_of(lattice("pull", REFERENCE))
    assert hub.asked("model.safetensors") == []


@pytest.mark.parametrize(
    ("reference", "refusal", "expected"),
    [
        ("hf:acme/other", None, "the hub shows no model acme/other (404)"),
        ("hf:acme/tiny@v9", None, "acme/tiny has no revision 'v9' (404)"),
        (
            REFERENCE,
            (401, {}),
            "the hub shows no model acme/tiny (401): check the name; if it is private or gated, the token in use",
        ),
        (REFERENCE, (403, {"X-Error-Code": "GatedRepo"}), "acme/tiny is gated (403): accept its licence"),
        (REFERENCE, (403, {}), "the hub shows no model acme/tiny (403)"),
        (REFERENCE, (429, {}), "answered 429 for acme/tiny: too many requests"),
        (REFERENCE, (503, {}), "answered 503 for acme/tiny: it has a problem of its own"),
    ],
)
def test_refusals_of_the_hub_are_one_line_each(lattice, hub, reference, refusal, expected):
    hub.refusal = refusal
    assert expected in error_of(lattice("pull", reference))


def test_without_a_token_it_says_to_set_one(lattice, hub):
    hub.refusal = (401, {})
    assert error_of(lattice("pull", REFERENCE, HF_TOKEN="")).endswith("if it is private or gated, set HF_TOKEN")


def test_without_a_network_it_says_where_the_hub_should_be(lattice, hub):
    hub.close()
    message = error_of(lattice("pull", REFERENCE))
    assert message.startswith(f"the connection to the hub at {hub.url} failed for acme/tiny (ConnectError")


def test_without_a_network_an_installed_model_will_do(lattice, hub, cache):
    ended(lattice("pull", REFERENCE))
    hub.close()
    stdout, stderr = ended(lattice("pull", REFERENCE))
    assert stdout == f"{cache / 'acme--tiny'}\n"
    assert "using what is here" in stderr
    error_of(lattice("pull", REFERENCE, "--include", "*.gguf"))
    error_of(lattice("pull", f"{REFERENCE}@v1"))
    error_of(lattice("pull", REFERENCE, "--force"))


def test_hf_hub_offline_is_obeyed(lattice, hub):
    assert "HF_HUB_OFFLINE forbids the network" in error_of(lattice("pull", REFERENCE, HF_HUB_OFFLINE="1"))
    assert hub.requests == []


class OtherHost(Loopback):
    """Where a hub sends downloads to: another origin."""

    def __init__(self, files):
        self.files = files
        super().__init__()

    def answer(self, handler):
        self.send(handler, self.files[handler.path.split("?")[0].strip("/")])


def test_the_token_goes_to_the_hub_and_to_nobody_else(lattice, hub):
    other = OtherHost(hub.files)
    hub.redirect = other.url
    # --debug shows all that could leak; `ended` looks for the token in it.
    _, stderr = ended(lattice("pull", REFERENCE, "--debug"))
    other.close()
    assert {headers.get("authorization") for _, _, headers in hub.requests} == {f"Bearer {SECRET}"}
    assert {headers.get("authorization") for _, _, headers in other.requests} == {None}
    assert len(other.requests) == 3
    assert "Signature=sealed" not in stderr


def test_the_token_is_not_shown_when_the_hub_repeats_it(lattice, hub):
    hub.refusal = (400, {"X-Error-Message": f"bad token {SECRET}"})
    process = lattice("pull", REFERENCE, "--debug")
    stdout, stderr = process.communicate(timeout=WAIT)
    assert process.returncode == 1
    assert "bad token ***" in stderr
    assert SECRET not in stdout + stderr


@pytest.mark.parametrize(
    "reference", ["hf:", "hf:tiny", "hf:a/b/c", "hf:../tiny", "hf:acme/tiny@", "hf:acme/ti..ny", "hf:acme/tiny@../x"]
)
def test_what_is_no_reference_is_refused_without_asking_anybody(reference, tmp_path):
    with pytest.raises(UsageError, match="write hf:ORG/NAME or hf:ORG/NAME@REVISION"):
        HuggingFaceSource(Settings()).pull(reference, tmp_path / "cache", (), lambda *_: None)
    assert not (tmp_path / "cache").exists()


def test_a_revision_is_asked_for_and_its_commit_recorded(lattice, hub, cache):
    ended(lattice("pull", f"{REFERENCE}@v1"))
    assert hub.requests[0][1].startswith("/api/models/acme/tiny/revision/v1")
    assert read_record(cache / "acme--tiny").revision == hub.commit
    assert all(f"/resolve/{hub.commit}/" in path for _, path, _ in hub.requests[1:])
