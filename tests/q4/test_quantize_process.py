"""``lattice quantize`` as its users run it: what is printed, copied and refused, and that nothing half done is left."""

import json
import resource
import shutil
import signal
import struct
import subprocess
import sys

import pexpect
import pytest

from tests.gguf import gguf_writer, tiny_llama
from tests.q4.q4_directory import DATA, NESTED, TIED
from tests.q4.quantized import command, environment, made, opened, run

ROWS, WIDTH = 1 << 17, 1 << 10


def names(directory):
    return sorted(path.name for path in directory.iterdir())


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A tied model of one tensor of 256 MiB, all zeros: a file with a hole takes no room."""
    directory = tmp_path_factory.mktemp("large") / "model"
    shutil.copytree(DATA / "tiny-llama-tied-bf16", directory)
    size = ROWS * WIDTH * 2
    entry = {"dtype": "BF16", "shape": [ROWS, WIDTH], "data_offsets": [0, size]}
    header = json.dumps({"model.embed_tokens.weight": entry}).encode()
    with (directory / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + size)
    return directory


@pytest.mark.parametrize("kind", ["q4", "mlx"])
def test_a_copy_opens_with_the_texts_of_its_source_and_its_path_is_printed(tmp_path, kind):
    target = tmp_path / "out"
    done = run(DATA / TIED, target, "--format", kind)
    assert (done.returncode, done.stdout) == (0, f"{target}\n")
    assert done.stderr.endswith("[lattice] quantising: 100%\n")
    assert names(tmp_path) == ["out"]
    copy, source = opened(target, kind), opened(DATA / TIED, "mlx")
    assert copy.tokenizer_json == source.tokenizer_json
    assert copy.tokenizer_config == source.tokenizer_config
    assert copy.generation_config == source.generation_config
    assert copy.chat_template == source.chat_template
    assert copy.chat_template is not None


def test_a_template_in_a_file_of_its_own_is_copied_too(tmp_path):
    source = tmp_path / "source"
    shutil.copytree(DATA / TIED, source)
    (source / "chat_template.jinja").write_text("{{ messages }} é")
    (source / "special_tokens_map.json").write_text("{}")
    target = made(source, tmp_path / "out", "q4")
    assert opened(target, "q4").chat_template == "{{ messages }} é"
    assert (target / "special_tokens_map.json").read_text() == "{}"


def test_a_source_without_a_tokenizer_is_copied_and_that_is_said(tmp_path):
    source = tmp_path / "source"
    shutil.copytree(DATA / TIED, source)
    (source / "tokenizer.json").unlink()
    done = run(source, tmp_path / "out", "--format", "q4")
    assert done.returncode == 0
    assert "[lattice] the copy has no tokenizer: " in done.stderr
    assert not (tmp_path / "out" / "tokenizer.json").exists()


@pytest.mark.parametrize("kind", ["q4", "mlx"])
@pytest.mark.parametrize("folder", [False, True], ids=["file", "folder"])
def test_a_single_file_is_a_source_too_and_its_texts_are_written_out(tmp_path, kind, folder):
    (tmp_path / "gguf").mkdir()
    path = tmp_path / "gguf" / "tiny.gguf"
    metadata = tiny_llama.metadata(tokenizer__chat_template=("str", "{{ messages }}"))
    path.write_bytes(gguf_writer.document(metadata, tiny_llama.tensors()))
    done = run(path.parent if folder else path, tmp_path / "out", "--format", kind, *(["--group-size", 32]))
    assert done.returncode == 0, done.stderr
    copy = opened(tmp_path / "out", kind)
    assert copy.config["model_type"] == "llama"
    assert copy.chat_template == "{{ messages }}"
    assert copy.tokenizer_config["eos_token"] == "<|end|>"
    assert "hello" in json.loads(copy.tokenizer_json)["model"]["vocab"]


def test_an_empty_directory_gives_way(tmp_path):
    (tmp_path / "out").mkdir()
    assert run(DATA / TIED, tmp_path / "out", "--format", "q4").returncode == 0
    assert names(tmp_path) == ["out"]


def filled(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    return tmp_path / "source", tmp_path / "out"


def a_file(tmp_path):
    (tmp_path / "out").write_text("mine")
    return tmp_path / "source", tmp_path / "out"


def itself(tmp_path):
    return tmp_path / "source", tmp_path / "source"


def itself_by_a_detour(tmp_path):
    return tmp_path / "source", tmp_path / "source" / ".." / "source"


def inside(tmp_path):
    return tmp_path / "source", tmp_path / "source" / "out"


def inside_by_a_link(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "source")
    return tmp_path / "source", tmp_path / "link" / "out"


def around(tmp_path):
    return tmp_path / "source", tmp_path


def a_link(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "real")
    return tmp_path / "source", tmp_path / "out"


def a_link_to_nowhere(tmp_path):
    (tmp_path / "out").symlink_to(tmp_path / "nowhere")
    return tmp_path / "source", tmp_path / "out"


def in_no_directory(tmp_path):
    return tmp_path / "source", tmp_path / "no" / "out"


@pytest.mark.parametrize(
    ("place", "message"),
    [
        (filled, "out is there already: name a new directory"),
        (a_file, "out is there already: name a new directory"),
        (itself, "lie within one another: name a directory beside it"),
        (itself_by_a_detour, "lie within one another: name a directory beside it"),
        (inside, "lie within one another: name a directory beside it"),
        (inside_by_a_link, "lie within one another: name a directory beside it"),
        (around, "lie within one another: name a directory beside it"),
        (a_link, "out is a symbolic link: name the directory itself"),
        (a_link_to_nowhere, "out is a symbolic link: name the directory itself"),
        (in_no_directory, "no is no directory: make it first"),
    ],
)
def test_a_target_that_would_lose_or_hide_something_is_refused(tmp_path, place, message):
    shutil.copytree(DATA / TIED, tmp_path / "source")
    source, target = place(tmp_path)
    before = {path: path.lstat().st_mtime_ns for path in tmp_path.rglob("*")}
    done = run(source, target, "--format", "q4")
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert {path: path.lstat().st_mtime_ns for path in tmp_path.rglob("*")} == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--format", "q4", "--bits", "8"], "--bits 8: --format q4 has 4 only"),
        (["--format", "q4", "--group-size", "64"], "--group-size 64: --format q4 has 32 only"),
        (["--format", "mlx", "--bits", "7"], "--bits 7: --format mlx has 2, 3, 4, 5, 6, 8"),
        (["--format", "mlx", "--bits", "0"], "--bits 0: --format mlx has"),
        (["--format", "mlx", "--group-size", "16"], "--group-size 16: --format mlx has 32, 64, 128"),
        (["--format", "mlx", "--bits", "four"], "four"),
        (["--format", "gguf"], "gguf"),
        ([], "--format"),
    ],
)
def test_a_scheme_that_does_not_exist_is_refused(tmp_path, arguments, message):
    done = run(DATA / TIED, tmp_path / "out", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert names(tmp_path) == []


def test_a_source_that_is_no_model_is_refused(tmp_path):
    (tmp_path / "source").mkdir()
    done = run(tmp_path / "source", tmp_path / "out", "--format", "q4")
    assert done.returncode == 3
    assert names(tmp_path) == ["source"]


def test_a_quantised_source_is_refused_and_nothing_is_left(tmp_path):
    done = run(DATA / "mlx-llama-4bit", tmp_path / "out", "--format", "q4")
    assert done.returncode == 3
    assert "is quantised already (safetensors MLX 4-bit): quantise the original model" in done.stderr
    assert names(tmp_path) == []


def test_a_full_disk_is_one_clear_line_and_nothing_is_left(tmp_path):
    def limited():
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    done = run(DATA / TIED, tmp_path / "out", "--format", "mlx", preexec_fn=limited)
    assert done.returncode == 1
    assert f"lattice: error: {tmp_path / 'out'} cannot be written: File too large" in done.stderr
    assert names(tmp_path) == []


def test_without_mlx_its_format_is_refused_and_q4_works(tmp_path):
    code = "import sys; sys.modules['mlx'] = None; from lattice_core.cli import main; sys.exit(main(sys.argv[1:]))"
    for kind, status in (("mlx", 4), ("q4", 0)):
        arguments = ["quantize", str(DATA / TIED), str(tmp_path / kind), "--format", kind]
        done = subprocess.run(
            [sys.executable, "-P", "-c", code, *arguments], capture_output=True, text=True, env=environment(), timeout=60
        )
        assert done.returncode == status, done.stderr
        assert ("--format mlx needs MLX: pip install 'lattice-engine[cpu]'" in done.stderr) is (kind == "mlx")
    assert names(tmp_path) == ["q4"]


@pytest.mark.parametrize("kind", ["q4", "mlx"])
def test_ctrl_c_leaves_nothing(tmp_path, large, kind):
    started = subprocess.Popen(
        command(large, tmp_path / "out", "--format", kind),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    with started:
        assert started.stderr.readline().startswith("[lattice] quantising: 1")
        assert [name.startswith(".out.partial-") for name in names(tmp_path)] == [True]
        started.send_signal(signal.SIGINT)
        output, errors = started.communicate(timeout=60)
    assert (started.returncode, output) == (130, "")
    assert errors.endswith(f"[lattice] stopped; nothing was written to {tmp_path / 'out'}\n")
    assert names(tmp_path) == []


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the peak from /proc")
@pytest.mark.parametrize("kind", ["q4", "mlx"])
def test_memory_stays_near_the_largest_tensor(tmp_path, large, kind):
    code = (
        "import os, re, sys; from lattice_core.cli import main; status = main(sys.argv[1:]);"
        "print(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1]); sys.exit(status)"
    )
    arguments = ["quantize", str(large), str(tmp_path / "out"), "--format", kind]
    done = subprocess.run(
        [sys.executable, "-P", "-c", code, *arguments], capture_output=True, text=True, env=environment(), timeout=100
    )
    assert done.returncode == 0, done.stderr
    peak, largest = int(done.stdout.split()[-1]) >> 10, ROWS * WIDTH * 2 >> 20
    print(f"peak {peak} MiB for a tensor of {largest} MiB")
    assert peak < largest + 300
    size = sum(path.stat().st_size for path in (tmp_path / "out").iterdir())
    assert size > ROWS * WIDTH // 2


def test_a_terminal_gets_a_bar(tmp_path):
    line = command(DATA / NESTED, tmp_path / "out", "--format", "q4")
    child = pexpect.spawn(line[0], line[1:], env={**environment(), "TERM": "xterm"}, encoding="utf-8", timeout=60)
    child.expect("quantising")
    child.expect("100%")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0
    assert (tmp_path / "out" / "config.json").is_file()
