from __future__ import annotations

import json
import struct
from argparse import ArgumentParser
from types import SimpleNamespace

import pytest

from lattice_core.model_names import resolve_model
from lattice_hub.gguf_header import read_gguf_head
from lattice_hub.inventory import list_models
from lattice_hub.models_command import arguments, models
from lattice_hub.record import Record, RecordedFile, write_record
from tests.hub.hub_server import tiny_safetensors

U32, STRING, ARRAY = 4, 8, 9


def string(text):
    return struct.pack("<Q", len(text.encode())) + text.encode()


def pair(key, kind, value):
    return string(key) + struct.pack("<I", kind) + value


ARCHITECTURE = pair("general.architecture", STRING, string("llama"))
FILE_TYPE = pair("general.file_type", U32, struct.pack("<I", 15))
TOKENS = pair("tokenizer.ggml.tokens", ARRAY, struct.pack("<IQ", STRING, 3) + string("a") + string("bc") + string(""))
SCORES = pair("tokenizer.ggml.scores", ARRAY, struct.pack("<IQ", 6, 3) + bytes(12))


def gguf(*pairs, version=3, claimed=None):
    return b"GGUF" + struct.pack("<IQQ", version, 0, len(pairs) if claimed is None else claimed) + b"".join(pairs)


def put(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


@pytest.fixture
def home(tmp_path):
    return tmp_path / "home"


def listed(home):
    return {entry.name: entry for entry in list_models({"HOME": str(home)})}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (gguf(ARCHITECTURE, FILE_TYPE), ("llama", "Q4_K_M")),
        (gguf(ARCHITECTURE, TOKENS, SCORES, FILE_TYPE), ("llama", "Q4_K_M")),
        (gguf(FILE_TYPE, ARCHITECTURE, version=2), ("llama", "Q4_K_M")),
        (gguf(ARCHITECTURE, TOKENS), ("llama", "")),
        (gguf(ARCHITECTURE, pair("general.file_type", U32, struct.pack("<I", 999))), ("llama", "type 999")),
    ],
)
def test_architecture_and_file_type_are_read_wherever_they_stand(tmp_path, content, expected):
    head = read_gguf_head(put(tmp_path / "a.gguf", content))
    assert (head.architecture, head.file_type) == expected


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "ends inside its header"),
        (b"PK\3\4" + bytes(40), "does not begin with GGUF"),
        (gguf(ARCHITECTURE, version=1), "version 1 is not 2 or 3"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 1), "not 2 or 3 in little-endian order"),
        (gguf(claimed=1 << 60), "claims 1152921504606846976 metadata pairs"),
        (gguf(ARCHITECTURE, claimed=2), "ends inside its header"),
        (gguf(FILE_TYPE), "names no architecture"),
        (gguf(struct.pack("<Q", 1 << 62)), "string in its header claims"),
        (gguf(pair("x", 77, b"")), "type 77, which is unknown"),
        (gguf(pair("x", ARRAY, struct.pack("<IQ", U32, 1 << 61))), "array in its header claims"),
        (gguf(pair("x", ARRAY, struct.pack("<IQ", ARRAY, 1))), "array in its header holds type 9"),
        (gguf(pair("x", STRING, struct.pack("<Q", 1 << 40))), "string in its header claims"),
    ],
)
def test_a_damaged_gguf_is_an_entry_with_its_reason(home, content, expected):
    put(home / ".lattice" / "models" / "bad" / "bad.gguf", content)
    entry = listed(home)["bad"]
    assert expected in entry.broken
    assert entry.size == len(content)


def test_all_caches_are_listed_with_names_that_model_takes(home):
    put(home / ".lattice/models/tiny/t.gguf", gguf(ARCHITECTURE, FILE_TYPE))
    put(home / ".lattice/models/acme--small/model.safetensors", tiny_safetensors(2000))
    put(home / ".lattice/models/acme--small/config.json", b'{"architectures": ["SmallForCausalLM"]}')
    put(home / ".lattice/models/packed/a.q4", b"....")
    put(home / ".lattice/models/packed/config.json", b'{"model_type": "qwen"}')
    snapshot = home / ".cache/huggingface/hub/models--acme--mlx/snapshots/abc"
    put(snapshot / "model.safetensors", tiny_safetensors())
    put(snapshot / "config.json", b'{"architectures": ["M"], "quantization": {"bits": 4, "group_size": 64}}')
    put(home / ".lmstudio/models/acme/two/a.gguf", gguf(ARCHITECTURE))
    put(home / ".lmstudio/models/acme/two/b.gguf", gguf(ARCHITECTURE, FILE_TYPE))
    put(home / ".lmstudio/models/acme/two/mmproj-b.gguf", gguf(ARCHITECTURE))
    found = listed(home)
    rows = {name: (entry.architecture, entry.format, entry.where, entry.broken) for name, entry in found.items()}
    assert rows == {
        "acme/small": ("SmallForCausalLM", "safetensors bf16", "lattice", ""),
        "packed": ("qwen", "q4", "lattice", ""),
        "tiny": ("llama", "gguf Q4_K_M", "lattice", ""),
        "acme/mlx": ("M", "safetensors 4-bit", "hugging face", ""),
        "acme/two/a.gguf": ("llama", "gguf", "lm studio", ""),
        "acme/two/b.gguf": ("llama", "gguf Q4_K_M", "lm studio", ""),
    }
    assert found["acme/small"].size == len(tiny_safetensors(2000))
    for name, entry in found.items():
        assert str(resolve_model(name, environ={"HOME": str(home)})) == entry.path


def test_a_model_that_another_cache_shadows_is_named_by_its_path(home):
    put(home / ".lattice/models/acme--same/a.gguf", gguf(ARCHITECTURE))
    other = put(home / ".lmstudio/models/acme/same/a.gguf", gguf(ARCHITECTURE)).parent
    assert list(listed(home)) == ["acme/same", str(other)]


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"model.safetensors": tiny_safetensors()}, "config.json is missing"),
        ({"model.safetensors": tiny_safetensors(), "config.json": b"{"}, "config.json is not JSON"),
        ({"model.safetensors": tiny_safetensors(), "config.json": b"[" * 100_000}, "config.json is not JSON"),
        ({"model.safetensors": tiny_safetensors(), "config.json": b"[]"}, "config.json is not a JSON object"),
        ({"model.safetensors": tiny_safetensors()[:-7], "config.json": b"{}"}, "model.safetensors: it lacks its last 7 bytes"),
        ({"model.safetensors": b"\xff" * 20, "config.json": b"{}"}, "model.safetensors: its header claims"),
        ({"model.safetensors": b"\2" + bytes(7) + b"[]", "config.json": b"{}"}, "its header is not that of a safetensors file"),
        (
            {
                "model-1.safetensors": tiny_safetensors(),
                "config.json": b"{}",
                "model.safetensors.index.json": b'{"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}',
            },
            "1 of its 2 files are missing, such as model-2.safetensors",
        ),
        ({"m-00001-of-00003.gguf": gguf(ARCHITECTURE), "m-00003-of-00003.gguf": b"x"}, "2 of its 3 files are here"),
    ],
)
def test_what_is_broken_is_listed_with_its_reason_and_hides_nothing(home, files, expected):
    for name, content in files.items():
        put(home / ".lattice/models/bad" / name, content)
    put(home / ".lattice/models/good/g.gguf", gguf(ARCHITECTURE))
    found = listed(home)
    assert expected in found["bad"].broken
    assert found["good"].broken == ""


def test_a_pulled_model_that_lost_bytes_is_broken(home):
    directory = put(home / ".lattice/models/tiny/t.gguf", gguf(ARCHITECTURE)).parent
    write_record(directory, Record("pypi", "tiny", "1", (RecordedFile("t.gguf", 10_000, "00"),)))
    assert listed(home)["tiny"].broken == f"t.gguf has {len(gguf(ARCHITECTURE))} bytes instead of 10000"


def run_models(home, *flags):
    parser = ArgumentParser()
    arguments(parser)
    return models(parser.parse_args(flags), SimpleNamespace(environ={"HOME": str(home)}))


def test_the_table_is_aligned_and_what_terminals_obey_is_masked(home, capsys):
    evil = pair("general.architecture", STRING, string("\x1b[2Jllama"))
    put(home / ".lattice/models/tiny/t.gguf", gguf(evil, FILE_TYPE) + bytes(1_234_000))
    put(home / ".lattice/models/broken/b.gguf", b"no")
    assert run_models(home) == 0
    assert capsys.readouterr().out == (
        "NAME    ARCHITECTURE  FORMAT       SIZE    WHERE\n"
        "broken  ?             gguf         2 B     lattice; broken: b.gguf: it ends inside its header\n"
        "tiny    ?[2Jllama     gguf Q4_K_M  1.2 MB  lattice\n"
    )


def test_json_holds_all_that_is_known(home, capsys):
    path = put(home / ".lattice/models/tiny/t.gguf", gguf(ARCHITECTURE, FILE_TYPE))
    assert run_models(home, "--json") == 0
    assert json.loads(capsys.readouterr().out) == [
        {
            "name": "tiny",
            "architecture": "llama",
            "format": "gguf Q4_K_M",
            "size": path.stat().st_size,
            "where": "lattice",
            "path": str(path.parent),
            "broken": "",
        }
    ]


def test_without_models_it_says_how_to_get_one(home, capsys):
    assert run_models(home) == 0
    captured = capsys.readouterr()
    assert (captured.out, "lattice pull smollm2-135m" in captured.err) == ("", True)
