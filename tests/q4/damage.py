"""Ways to damage a sound KHQ4 directory, and the register of builders that do it."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING

from tests.q4.q4_directory import INDEX

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NORM_FILE = "model_norm_weight.f16"
PACKED = "model.layers.1.mlp.down_proj.weight"
PACKED_FILE = "model_layers_1_mlp_down_proj_weight.q4"

BROKEN: dict[str, Callable[[Path], str]] = {}
FOUND_WHEN_READ: set[str] = set()
FOUND_AFTER_OPENING: set[str] = set()


def broken(build: Callable[[Path], str]) -> Callable[[Path], str]:
    BROKEN[build.__name__.removeprefix("build_")] = build
    return build


def found_when_read(build: Callable[[Path], str]) -> Callable[[Path], str]:
    """The loader finds it, when the tensor is read."""
    FOUND_WHEN_READ.add(build.__name__.removeprefix("build_"))
    return broken(build)


def found_after_opening(build: Callable[[Path], str]) -> Callable[[Path], str]:
    """The tokenizer or the backend finds it."""
    FOUND_AFTER_OPENING.add(build.__name__.removeprefix("build_"))
    return broken(build)


def overwrite(path: Path, offset: int, data: bytes) -> None:
    stored = bytearray(path.read_bytes())
    assert offset + len(data) <= len(stored)
    stored[offset : offset + len(data)] = data
    path.write_bytes(stored)


def overwrite_block(path: Path, block: int, *, scale: float | None = None, bias: float | None = None) -> None:
    """Put another scale or bias into a block of a two-dimensional ``.q4`` file."""
    for value, place in ((scale, 0), (bias, 2)):
        if value is not None:
            overwrite(path, 36 + 20 * block + place, struct.pack("<e", value))


def change_json(path: Path, **changes: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def rewrite_index(directory: Path, change: Callable[[list[dict]], object]) -> None:
    entries = json.loads((directory / INDEX).read_text())
    change(entries)
    (directory / INDEX).write_text(json.dumps(entries))


def entry_of(entries: list[dict], name: str) -> dict:
    return next(entry for entry in entries if entry["name"] == name)
