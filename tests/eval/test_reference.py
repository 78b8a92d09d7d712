"""Against transformers (``tests/data/perplexity.npz``): every token's likelihood, and the whole command with MLX."""

import json
from pathlib import Path

import numpy as np
import pytest

from lattice_core.cli import main
from lattice_core.descriptors import Settings
from lattice_core.tokenizer import Tokenizer
from lattice_core.types import Limits
from lattice_eval.scoring import score
from lattice_eval.text_tokens import read_text, tokenize
from lattice_eval.windows import windows_of
from lattice_mlx.backend import MlxBackend
from lattice_safetensors.loader import SafetensorsLoader

DATA = Path(__file__).parents[1] / "data"
TEXT = DATA / "perplexity.txt"
MODELS = ["tiny-llama-tied-f32", "tiny-qwen35-tied-f32"]
SIZES = [(128, 64), (300, 300)]


@pytest.fixture(scope="module")
def reference():
    with np.load(DATA / "perplexity.npz") as file:
        return dict(file)


@pytest.mark.parametrize("name", MODELS)
def test_every_token_is_as_likely_as_transformers_says(reference, name):
    checkpoint = SafetensorsLoader(Settings()).open(DATA / name)
    tokens = tokenize(read_text(str(TEXT)), Tokenizer.from_checkpoint(checkpoint), checkpoint.tokenizer_config)
    assert list(tokens.ids) == list(reference["ids"])
    model = MlxBackend(Settings(own={"device": "cpu"})).load(checkpoint, Limits(), lambda _done, _total: None)
    for window, stride in SIZES:
        found = np.concatenate(list(score(model, tokens.ids, windows_of(len(tokens.ids), window, stride))))
        expected = reference[f"{name}/window-{window}-stride-{stride}/nll"]
        assert found == pytest.approx(expected, abs=1e-3)
        assert model.live_states() == 0


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("window", "stride"), SIZES)
def test_the_command_gives_the_perplexity_that_transformers_gives(reference, name, window, stride, capsys):
    sizes = ["--window", str(window), "--stride", str(stride)]
    arguments = ["eval", "perplexity", "--model", str(DATA / name), "--text", str(TEXT), "--json", "--mlx-device", "cpu"]
    assert main([*arguments, *sizes]) == 0
    found = json.loads(capsys.readouterr().out)
    expected = f"{name}/window-{window}-stride-{stride}"
    assert found["scored"] == reference[f"{expected}/count"]
    assert found["nll"] * found["scored"] == pytest.approx(float(reference[f"{expected}/nll_sum"]), rel=1e-5)
    assert found["perplexity"] == pytest.approx(float(reference[f"{expected}/perplexity"]), rel=1e-4)
    assert found["dtype"] == "float32"
