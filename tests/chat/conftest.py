from __future__ import annotations

import json
from pathlib import Path

import pytest

from lattice_core.tokenizer import Tokenizer

FIXTURE = Path(__file__).parents[1] / "data" / "tiny-llama-tied-f32"


@pytest.fixture(scope="session")
def tokenizer_config() -> dict[str, object]:
    return json.loads((FIXTURE / "tokenizer_config.json").read_text())


@pytest.fixture(scope="session")
def tokenizer(tokenizer_config: dict[str, object]) -> Tokenizer:
    return Tokenizer((FIXTURE / "tokenizer.json").read_bytes(), tokenizer_config)


@pytest.fixture(scope="session")
def bare_tokenizer() -> Tokenizer:
    """The same byte-level vocabulary without a single added token."""
    document = json.loads((FIXTURE / "tokenizer.json").read_text())
    document["added_tokens"] = []
    return Tokenizer(json.dumps(document).encode())
