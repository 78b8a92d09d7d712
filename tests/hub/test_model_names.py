from __future__ import annotations

import os

import pytest

from lattice_core.errors import ModelError
from lattice_core.model_names import default_model, hub_models, lattice_models, lm_studio_models, resolve_model

ALIASES = {"smollm2-135m": "SmolLM2, 98 MB"}
REVISION = "0123456789abcdef0123456789abcdef01234567"


def weights(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"")
    return path


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home with a model of each kind of place; the working directory is beside it."""
    home = tmp_path / "home"
    lattice = home / ".lattice" / "models"
    weights(lattice / "tiny" / "tiny.gguf")
    weights(lattice / "acme--small" / "model.safetensors")
    weights(lattice / "acme" / "nested" / "model.safetensors")
    weights(lattice / "loose.gguf")
    weights(lattice / ".partial" / "half.pull" / "model.safetensors")
    (lattice / "empty").mkdir()
    hub = home / ".cache" / "huggingface" / "hub"
    weights(hub / "models--acme--hub" / "snapshots" / REVISION / "model.safetensors")
    (hub / "models--acme--hub" / "refs").mkdir()
    (hub / "models--acme--hub" / "refs" / "main").write_text(REVISION)
    weights(home / ".lmstudio" / "models" / "acme" / "studio" / "a.gguf")
    weights(home / ".cache" / "lm-studio" / "models" / "acme" / "older" / "a.gguf")
    here = tmp_path / "here"
    weights(here / "sub" / "dir" / "model.safetensors")
    weights(here / "local.gguf")
    weights(here / "loose.gguf")
    weights(here / "plain" / "model.safetensors")
    monkeypatch.chdir(here)
    return home


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("~/models/x", "{home}/models/x"),
        ("{home}/.lattice/models/empty", "{home}/.lattice/models/empty"),
        ("sub/dir", "sub/dir"),
        ("./local.gguf", "local.gguf"),
        ("plain/", "plain"),
        ("../here/plain", "../here/plain"),
        ("tiny", "{home}/.lattice/models/tiny"),
        ("loose.gguf", "{home}/.lattice/models/loose.gguf"),
        ("local.gguf", "local.gguf"),
        ("tiny/tiny.gguf", "{home}/.lattice/models/tiny/tiny.gguf"),
        ("acme/small", "{home}/.lattice/models/acme--small"),
        ("acme/small/model.safetensors", "{home}/.lattice/models/acme--small/model.safetensors"),
        ("acme/nested", "{home}/.lattice/models/acme/nested"),
        ("acme/hub", "{home}/.cache/huggingface/hub/models--acme--hub/snapshots/" + REVISION),
        ("acme/studio", "{home}/.lmstudio/models/acme/studio"),
        ("acme/studio/a.gguf", "{home}/.lmstudio/models/acme/studio/a.gguf"),
        ("acme/older", "{home}/.cache/lm-studio/models/acme/older"),
    ],
)
def test_a_name_finds_its_path(home, name, expected):
    weights(home / "models" / "x" / "model.safetensors")
    found = resolve_model(name.format(home=home), environ={"HOME": str(home)}, aliases=ALIASES)
    assert str(found) == expected.format(home=home)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "smollm2-135m",
            "model directory not found: {cache}/smollm2-135m; run `lattice pull smollm2-135m` to get SmolLM2, 98 MB",
        ),
        ("tniy", "model directory not found: {cache}/tniy; did you mean tiny? `lattice models` lists what is here"),
        ("smollm2-135", "{cache}/smollm2-135; did you mean smollm2-135m?"),
        ("zzz", "{cache}/zzz; `lattice models` lists what is here, `lattice pull` gets more"),
        ("plain", "{cache}/plain; for the one in this directory write --model ./plain"),
        ("acme/absent", "none of the caches of Lattice, the Hugging Face hub and LM Studio; run `lattice pull hf:acme/absent`"),
        ("acme/absent/x.gguf", "run `lattice pull hf:acme/absent`"),
        ("/no/such/path", "model directory not found: /no/such/path; check the path"),
        ("~/absent", "model directory not found: {home}/absent; check the path"),
        ("../absent", "model directory not found: ../absent; check the path"),
        ("acme/../../etc", "model directory not found: acme/../../etc; check the path"),
        ("..", "--model .. is not a name"),
        (".partial", "--model .partial is not a name"),
        ("", "--model '' is not a name"),
        ("a\x00b", "--model 'a\\x00b' is not a name"),
        ("a\x1b[2J", "--model 'a\\x1b[2J' is not a name"),
        ("hf:acme/small@v1", "is what `lattice pull` takes; once pulled, the model's name is acme/small"),
        ("x" * 300, "model directory not found: "),
    ],
)
def test_a_name_that_finds_nothing_says_what_to_do(home, name, expected):
    with pytest.raises(ModelError) as caught:
        resolve_model(name, environ={"HOME": str(home)}, aliases=ALIASES)
    assert expected.format(home=home, cache=home / ".lattice" / "models") in caught.value.message
    assert "\n" not in caught.value.message


def test_lattice_model_cache_moves_the_cache(home, tmp_path):
    weights(tmp_path / "other" / "mine" / "a.gguf")
    environ = {"HOME": str(home), "LATTICE_MODEL_CACHE": str(tmp_path / "other")}
    assert resolve_model("mine", environ=environ) == tmp_path / "other" / "mine"
    with pytest.raises(ModelError, match="model directory not found"):
        resolve_model("tiny", environ=environ)
    assert resolve_model("mine", environ={**environ, "LATTICE_MODEL_CACHE": "~/../other"}).samefile(tmp_path / "other" / "mine")


@pytest.mark.parametrize(
    ("variable", "inner"),
    [("HF_HUB_CACHE", ""), ("HUGGINGFACE_HUB_CACHE", ""), ("HF_HOME", "hub"), ("XDG_CACHE_HOME", "huggingface/hub")],
)
def test_the_hubs_variables_move_its_cache(home, tmp_path, variable, inner):
    snapshot = tmp_path / "elsewhere" / inner / "models--acme--moved" / "snapshots" / REVISION
    weights(snapshot / "model.safetensors")
    environ = {"HOME": str(home), variable: str(tmp_path / "elsewhere")}
    assert resolve_model("acme/moved", environ=environ) == snapshot


def test_without_a_ref_the_newest_snapshot_with_weights_is_taken(home):
    snapshots = home / ".cache" / "huggingface" / "hub" / "models--acme--pinned" / "snapshots"
    for age, name in enumerate(("new", "old")):
        weights(snapshots / name / "model.safetensors")
        os.utime(snapshots / name, (1000 - age, 1000 - age))
    weights(snapshots / "newest-without-weights" / "config.json")
    assert resolve_model("acme/pinned", environ={"HOME": str(home)}) == snapshots / "new"


def test_a_snapshot_whose_weights_are_links_to_nothing_is_no_model(home):
    snapshot = home / ".cache" / "huggingface" / "hub" / "models--acme--half" / "snapshots" / REVISION
    snapshot.mkdir(parents=True)
    (snapshot / "model.safetensors").symlink_to("../../blobs/absent")
    with pytest.raises(ModelError, match="run `lattice pull hf:acme/half`"):
        resolve_model("acme/half", environ={"HOME": str(home)})


def test_the_caches_list_their_models_by_the_names_that_find_them(home):
    environ = {"HOME": str(home)}
    listed = [[name for name, _ in models(environ)] for models in (lattice_models, hub_models, lm_studio_models)]
    assert listed == [["acme/nested", "acme/small", "loose.gguf", "tiny"], ["acme/hub"], ["acme/studio", "acme/older"]]
    for models in (lattice_models, hub_models, lm_studio_models):
        for name, path in models(environ):
            assert resolve_model(name, environ=environ) == path


def test_without_a_name_the_model_that_arrived_last_is_taken(home):
    environ = {"HOME": str(home)}
    for age, (_, path) in enumerate(lattice_models(environ)):
        os.utime(path, (5000 - age, 5000 - age))
    assert resolve_model(None, environ=environ) == default_model(environ) == home / ".lattice" / "models" / "acme" / "nested"
    record = weights(home / ".lattice" / "models" / "tiny" / "lattice.json")
    os.utime(record, (6000, 6000))
    assert resolve_model(None, environ=environ) == home / ".lattice" / "models" / "tiny"


def test_without_a_name_and_without_models_it_says_how_to_get_one(tmp_path):
    with pytest.raises(ModelError) as caught:
        resolve_model(None, environ={"HOME": str(tmp_path)})
    assert caught.value.message == "no model: run `lattice pull smollm2-135m`, or give --model"
