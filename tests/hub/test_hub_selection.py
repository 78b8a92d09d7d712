from __future__ import annotations

import pytest

from lattice_core.errors import UsageError
from lattice_hub.errors import PullError
from lattice_hub.hub_selection import RemoteFile, select_files


def chosen(names, include=()):
    return [file.name for file in select_files("acme/tiny", [RemoteFile(name, 10, "") for name in names], include)]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (
            ["model.safetensors", "config.json", "tokenizer.json", "chat_template.jinja", "merges.txt", "LICENSE", "README.md"],
            ["LICENSE", "chat_template.jinja", "config.json", "merges.txt", "model.safetensors", "tokenizer.json"],
        ),
        (["model.safetensors", "model.gguf", "config.json"], ["config.json", "model.safetensors"]),
        (["model.safetensors", "consolidated.safetensors"], ["model.safetensors"]),
        (["weights.safetensors", "pytorch_model.bin", "training_args.bin"], ["weights.safetensors"]),
        (["model.safetensors", "onnx/model.safetensors", "original/params.json"], ["model.safetensors"]),
        (["only.gguf", "config.json", "mmproj-only.gguf"], ["only.gguf"]),
        (["a-00001-of-00002.gguf", "a-00002-of-00002.gguf"], ["a-00001-of-00002.gguf", "a-00002-of-00002.gguf"]),
        (["Q4/only.gguf", "README.md"], ["Q4/only.gguf"]),
        (["model.safetensors", "lattice.json"], ["model.safetensors"]),
    ],
)
def test_without_include_what_a_model_needs_is_chosen(names, expected):
    assert chosen(names) == expected


def test_of_several_gguf_models_one_must_be_chosen_and_shards_count_as_one():
    names = ["a-Q4.gguf", "a-Q8-00001-of-00002.gguf", "a-Q8-00002-of-00002.gguf"]
    with pytest.raises(UsageError) as caught:
        chosen(names)
    assert "has 2 GGUF models: a-Q4.gguf (10 B), a-Q8-*-of-00002.gguf (20 B)" in caught.value.message
    assert chosen(names, ["*a-Q8-*-of-00002.gguf"]) == names[1:]


def test_include_takes_what_matches_any_pattern_but_neither_code_nor_pickles():
    names = ["a.gguf", "b/c.gguf", "model.py", "model.bin", "model.PT", "x.so"]
    assert chosen(names, ["*"]) == ["a.gguf", "b/c.gguf"]
    assert chosen(names, ["a.*", "b/*"]) == ["a.gguf", "b/c.gguf"]


@pytest.mark.parametrize(("names", "include"), [(["a.gguf"], ["*.safetensors"]), (["model.bin"], ["*.bin"])])
def test_include_that_matches_nothing_is_an_error_that_shows_what_there_is(names, include):
    with pytest.raises(
        UsageError, match=r"matches no file of acme/tiny that may be pulled; it has ('a.gguf' \(10 B\)|no file)"
    ):
        chosen(names, include)


def test_a_repository_of_pickles_is_refused():
    with pytest.raises(PullError, match="holds neither safetensors nor GGUF weights"):
        chosen(["pytorch_model.bin", "config.json"])


def test_too_many_files_are_refused():
    with pytest.raises(PullError, match="10001 files are more than 10000"):
        chosen([f"{number}.json" for number in range(10_001)], ["*"])
