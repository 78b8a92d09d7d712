from pathlib import Path

import pytest

from lattice_core.cli.served_model import served_name


@pytest.mark.parametrize(
    ("kind", "path", "name"),
    [
        ("dir", "models/tiny", "tiny"),
        ("file", "models/tiny/weights.gguf", "weights"),
        ("file", "cache/smollm2-135m/SmolLM2.Q4_1.gguf", "smollm2-135m"),
        ("dir", "cache/smollm2-135m", "smollm2-135m"),
        ("file", "cache/loose.gguf", "loose"),
        ("dir", "cache/ORG--NAME", "ORG/NAME"),
        ("dir", "cache/ORG--NAME--v2", "ORG/NAME--v2"),
        ("dir", "cache/ORG/NAME", "ORG/NAME"),
        ("file", "cache/ORG/NAME/x.gguf", "ORG/NAME"),
        ("dir", "hub/models--ORG--NAME/snapshots/0123abcd", "ORG/NAME"),
        ("file", "hub/models--ORG--NAME/snapshots/0123abcd/x.gguf", "ORG/NAME"),
        ("dir", "models/a--b", "a--b"),
    ],
)
def test_a_model_is_served_under_the_name_of_its_directory(tmp_path, kind, path, name):
    whole = tmp_path / path
    if kind == "dir":
        whole.mkdir(parents=True)
    else:
        whole.parent.mkdir(parents=True)
        whole.write_text("")
    assert served_name(whole, {"LATTICE_MODEL_CACHE": str(tmp_path / "cache"), "HOME": str(tmp_path)}) == name


def test_the_root_directory_has_a_name_too():
    assert served_name(Path("/"), {"HOME": "/nowhere"}) == "model"
