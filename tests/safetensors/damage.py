"""Ways to damage a copy of a sound model directory, and the register of builders that do it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from tests.safetensors.safetensors_writer import document, framed, parsed, tensors_of

if TYPE_CHECKING:
    from collections.abc import Callable

DATA = Path(__file__).parent.parent / "data"
SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
NORM, EMBEDDING = "model.norm.weight", "model.embed_tokens.weight"
PACKED = "model.layers.1.mlp.down_proj"

BROKEN: dict[str, Callable[[Path], str]] = {}
FOUND_AFTER_OPENING: set[str] = set()


def broken(build: Callable[[Path], str]) -> Callable[[Path], str]:
    BROKEN[build.__name__.removeprefix("build_")] = build
    return build


def found_after_opening(build: Callable[[Path], str]) -> Callable[[Path], str]:
    FOUND_AFTER_OPENING.add(build.__name__.removeprefix("build_"))
    return broken(build)


def copy(directory: Path, name: str = "tiny-llama-tied-bf16") -> None:
    shutil.copytree(DATA / name, directory, dirs_exist_ok=True, ignore=shutil.ignore_patterns("reference.npz"))


def change_json(path: Path, **changes: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def rewrite(directory: Path, change: Callable[[dict], object]) -> None:
    """Write the weights again, laid out soundly, after ``change`` of name to (dtype, shape, bytes)."""
    tensors = tensors_of(directory / SINGLE)
    change(tensors)
    (directory / SINGLE).write_bytes(document(tensors, {"format": "pt"}))


def reheader(directory: Path, change: Callable[[dict], object]) -> None:
    """Change the header's entries and leave the data as it is."""
    header, data = parsed(directory / SINGLE)
    change(header)
    (directory / SINGLE).write_bytes(framed(header, data))


def rewrite_index(directory: Path, change: Callable[[dict], object]) -> None:
    index = json.loads((directory / INDEX).read_text())
    change(index["weight_map"])
    (directory / INDEX).write_text(json.dumps(index))
