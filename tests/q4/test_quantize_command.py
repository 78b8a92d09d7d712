"""``lattice quantize``: its copies give the logits of the dequantised weights; what it refuses it leaves alone."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from lattice_core.descriptors import Settings
from lattice_core.types import Limits, RowInput, TensorData, TensorSpec, Want
from lattice_mlx.backend import MlxBackend
from lattice_q4.loader import Q4Loader
from lattice_safetensors.loader import SafetensorsLoader
from tests.q4.q4_directory import DATA

MODELS = tuple(sorted(path.parent.name for path in DATA.glob("tiny-*/reference.npz")))
LATTICE = (sys.executable, "-m", "lattice_core")
PROMPT = tuple(range(3, 40))


def quantize(*arguments):
    return subprocess.run([*LATTICE, "quantize", *map(str, arguments)], capture_output=True, text=True, check=False)


def logits_of(checkpoint):
    model = MlxBackend(Settings(own={"dequantize": "never"})).load(checkpoint, Limits(dtype="float32"), lambda *_: None)
    return model.read_logits(model.forward([RowInput(model.new_state(), PROMPT, Want.ALL)]).array)


class Dequantised:
    """A checkpoint whose packed weights are spelled out in float32, by plain arithmetic on their bits."""

    def __init__(self, checkpoint):
        self._checkpoint = checkpoint
        self._specs = {
            name: TensorSpec(name, "F32", spec.shape) if spec.quantization else spec
            for name, spec in checkpoint.tensors().items()
        }
        self.packed = sum(spec.quantization is not None for spec in checkpoint.tensors().values())

    def __getattr__(self, name):
        return getattr(self._checkpoint, name)

    def tensors(self):
        return self._specs

    def read(self, name):
        data = self._checkpoint.read(name)
        scheme = data.spec.quantization
        if scheme is None:
            return data
        rows, width = int(np.prod(data.spec.shape[:-1])), data.spec.shape[-1]
        bits = np.unpackbits(np.frombuffer(data.data, np.uint8).reshape(rows, -1), axis=1, bitorder="little")
        codes = bits.reshape(rows, width, scheme.bits) @ (1 << np.arange(scheme.bits))
        scales, biases = (
            np.repeat(floats(part, scheme.scale_dtype).reshape(rows, -1), scheme.group_size, axis=1)
            for part in (data.scales, data.biases)
        )
        weights = (codes * scales + biases).astype(np.float32)
        return TensorData(self._specs[name], memoryview(weights.tobytes()))


def floats(part, dtype):
    if dtype == "BF16":
        return (np.frombuffer(part, "<u2").astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return np.frombuffer(part, {"F32": "<f4", "F16": "<f2"}[dtype]).astype(np.float64)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("kind", ["q4", "mlx"])
def test_what_is_written_gives_the_logits_of_the_dequantised_weights(tmp_path, name, kind):
    target = tmp_path / "copy"
    done = quantize(DATA / name, target, "--format", kind, *(("--group-size", "32") if kind == "mlx" else ()))
    assert (done.returncode, done.stdout) == (0, f"{target}\n"), done.stderr
    loader = Q4Loader if kind == "q4" else SafetensorsLoader
    expected = Dequantised(loader(Settings()).open(target))
    assert expected.packed > 8
    ours, theirs = logits_of(loader(Settings()).open(target)), logits_of(expected)
    original = logits_of(SafetensorsLoader(Settings()).open(DATA / name))
    difference = np.abs(ours - theirs).max()
    print(
        f"{name} {kind}: {difference:.2e} from the dequantised weights, {np.abs(ours - original).max():.2f} from the original"
    )
    assert difference < 1e-3
    for text in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        assert json.loads((target / text).read_text()) == json.loads((DATA / name / text).read_text())
    assert [path.name for path in tmp_path.iterdir()] == ["copy"]


@pytest.mark.parametrize("bits", [2, 3, 5, 6, 8])
def test_every_width_of_mlx_is_read_back(tmp_path, bits):
    done = quantize(DATA / "tiny-qwen3-tied-f32", tmp_path / "copy", "--format", "mlx", "--bits", bits, "--group-size", 32)
    assert done.returncode == 0, done.stderr
    checkpoint = SafetensorsLoader(Settings()).open(tmp_path / "copy")
    assert {spec.quantization.bits for spec in checkpoint.tensors().values() if spec.quantization} == {bits}
    assert np.abs(logits_of(checkpoint) - logits_of(Dequantised(checkpoint))).max() < 1e-3


def test_quality_grows_with_bits(tmp_path):
    original = logits_of(SafetensorsLoader(Settings()).open(DATA / "tiny-llama-tied-f32"))
    errors = []
    for bits in (3, 4, 6, 8):
        assert quantize(DATA / "tiny-llama-tied-f32", tmp_path / str(bits), "--format", "mlx", "--bits", bits).returncode == 0
        errors.append(np.abs(logits_of(SafetensorsLoader(Settings()).open(tmp_path / str(bits))) - original).mean())
    assert errors == sorted(errors, reverse=True)


def test_a_quantised_directory_serves(tmp_path):
    for kind in ("q4", "mlx"):
        assert quantize(DATA / "tiny-qwen35-nested-bf16", tmp_path / kind, "--format", kind, "--group-size", 32).returncode == 0
        command = [*LATTICE, "--model", str(tmp_path / kind), "--prompt", "Hello", "--max-tokens", "4", "--temperature", "0"]
        assert subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_visual_tensors_are_left_out_and_the_head_for_prediction_stays_in_q4(tmp_path):
    done = quantize(DATA / "tiny-qwen35-nested-bf16", tmp_path / "q4", "--format", "q4")
    assert "tensors are left out: model.visual." in done.stderr
    names = {entry["name"] for entry in json.loads((tmp_path / "q4" / "quantize_index.json").read_text())}
    assert "mtp.fc.weight" in names
    assert not any("visual" in name for name in names)


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("--format", "q4", "--bits", "8"), 2, "--bits 8: --format q4 has 4 only"),
        (("--format", "mlx", "--bits", "7"), 2, "--bits 7: --format mlx has 2, 3, 4, 5, 6, 8"),
        (("--format", "mlx", "--group-size", "48"), 2, "--group-size 48: --format mlx has 32, 64, 128"),
    ],
)
def test_impossible_schemes_are_usage_errors(tmp_path, arguments, status, message):
    done = quantize(DATA / "tiny-llama-tied-f32", tmp_path / "copy", *arguments)
    assert (done.returncode, message in done.stderr) == (status, True), done.stderr
    assert list(tmp_path.iterdir()) == []


def copied(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    for path in (DATA / "tiny-llama-tied-f32").iterdir():
        (source / path.name).write_bytes(path.read_bytes())
    return source


@pytest.mark.parametrize("where", ["same", "within", "around", "full", "file", "link", "nowhere"])
def test_a_target_that_would_harm_something_is_refused(tmp_path, where):
    source = copied(tmp_path)
    target = {"same": source, "within": source / "x", "around": tmp_path, "nowhere": tmp_path / "a" / "b"}.get(
        where, tmp_path / where
    )
    if where == "full":
        target.mkdir()
        (target / "kept").write_text("kept")
    elif where == "file":
        target.write_text("kept")
    elif where == "link":
        target.symlink_to(tmp_path / "elsewhere")
    before = {path: path.lstat().st_mtime_ns for path in tmp_path.rglob("*")}
    done = quantize(source, target, "--format", "q4")
    assert (done.returncode, len(done.stderr.strip().splitlines())) == (2, 1), done.stderr
    assert {path: path.lstat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_quantised_and_damaged_sources_are_refused_and_leave_nothing(tmp_path):
    for source, message in (("mlx-llama-4bit", "is quantised already"), ("mlx-qwen35-4bit", "is quantised already")):
        done = quantize(DATA / source, tmp_path / "copy", "--format", "q4")
        assert (done.returncode, message in done.stderr) == (3, True), done.stderr
    source = copied(tmp_path)
    raw = bytearray((source / "model.safetensors").read_bytes())
    raw[-4:] = np.float32(np.nan).tobytes()
    (source / "model.safetensors").write_bytes(raw)
    for kind in ("q4", "mlx"):
        done = quantize(source, tmp_path / "copy", "--format", kind)
        assert (done.returncode, "not finite" in done.stderr) == (3, True), done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def big_model(directory, rows):
    """A Llama whose embedding, in bfloat16, has ``rows`` of 2048."""
    source = copied(directory)
    config = json.loads((source / "config.json").read_text())
    config |= {"vocab_size": rows, "hidden_size": 2048, "intermediate_size": 32, "num_hidden_layers": 1, "head_dim": 32}
    config |= {"num_attention_heads": 1, "num_key_value_heads": 1, "tie_word_embeddings": True}
    (source / "config.json").write_text(json.dumps(config))
    shapes = {"model.embed_tokens.weight": (rows, 2048), "model.norm.weight": (2048,)}
    layer = "model.layers.0."
    for name, shape in (("self_attn.q_proj", (32, 2048)), ("self_attn.k_proj", (32, 2048)), ("self_attn.v_proj", (32, 2048))):
        shapes[f"{layer}{name}.weight"] = shape
    shapes |= {f"{layer}self_attn.o_proj.weight": (2048, 32), f"{layer}mlp.down_proj.weight": (2048, 32)}
    shapes |= {f"{layer}mlp.gate_proj.weight": (32, 2048), f"{layer}mlp.up_proj.weight": (32, 2048)}
    shapes |= {f"{layer}{name}.weight": (2048,) for name in ("input_layernorm", "post_attention_layernorm")}
    header, at = {}, 0
    for name, shape in shapes.items():
        size = 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    block = (np.random.default_rng(0).normal(size=1 << 20).astype(np.float32).view(np.uint32) >> 16).astype("<u2").tobytes()
    with (source / "model.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for start in range(0, at, len(block)):
            file.write(block[: at - start])
    return source, 2 * rows * 2048


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["q4", "mlx"])
def test_memory_stays_below_twice_the_largest_tensor_and_half_a_gigabyte(tmp_path, kind):
    source, largest = big_model(tmp_path, 1 << 17)
    script = (
        "import sys; from lattice_core.cli import main; status = main(sys.argv[1:]);"
        "print(status, *(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')))"
    )
    command = [sys.executable, "-c", script, "quantize", str(source), str(tmp_path / "copy"), "--format", kind]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    status, peak = (int(word) for word in done.stdout.split()[-2:])
    print(f"{kind}: peak {peak / 1024:.0f} MiB, largest tensor {largest >> 20} MiB")
    assert status == 0, done.stderr
    assert peak * 1024 < 2 * largest + 500_000_000


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["q4", "mlx"])
def test_an_interrupted_conversion_leaves_nothing(tmp_path, kind):
    source, _ = big_model(tmp_path, 1 << 17)
    command = [*LATTICE, "quantize", str(source), str(tmp_path / "copy"), "--format", kind]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 60
        while not any(path.stat().st_size for path in tmp_path.glob(".copy.partial-*/*")):
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.strip().splitlines()[-1] == f"[lattice] stopped; nothing was written to {tmp_path / 'copy'}"
    assert [path.name for path in tmp_path.iterdir()] == ["source"]
