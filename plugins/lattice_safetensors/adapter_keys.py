"""The names of an adapter's tensors: which module each belongs to, in which library's notation, and what is no LoRA.

Owns the key formats of PEFT (``PATH.lora_A.weight``) and mlx-lm (``PATH.lora_a``), the pairing of A with B, and the wrappers
around the decoder that are left out of a module's name. Must not know bytes, scales or models.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from attrs import frozen

from lattice_core.errors import ModelError
from lattice_safetensors.header import shown

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

PEFT, MLX = "PEFT", "MLX"
# Between the letter and ``weight`` may stand the name that the adapter had in PEFT.
_PEFT_KEY = re.compile(r"(?P<path>.+)\.lora_(?P<letter>[AB])(?:(?:\.[^.]+)?\.weight)?")
_MLX_KEY = re.compile(r"(?P<path>.+)\.lora_(?P<letter>[ab])")
_PEFT_WRAPPER = "base_model.model."
_WRAPPERS = frozenset(("base_model", "model", "language_model"))

_EXPLAINED = (
    (
        re.compile(r".*\.lora_magnitude_vector(\..+)?"),
        "a DoRA magnitude: DoRA is not supported; merge the adapter into its base",
    ),
    (re.compile(r".*\.m"), "a DoRA magnitude: DoRA is not supported; fuse the adapter into its base"),
    (re.compile(r".*\.lora_embedding_[AB](\..+)?"), "an adapter on embeddings, which is not supported; merge it into its base"),
    (re.compile(r".*\.lora_[AB]\.(.+\.)?bias"), "a bias of a LoRA factor (lora_bias), which is not supported"),
    (re.compile(r".*\.bias"), "a trained bias, which is not supported; train with bias='none' or merge the adapter"),
    (re.compile(r".*\.weight"), "a module's whole weight (modules_to_save), which is not supported; merge the adapter"),
)


@frozen
class Pair:
    """The two tensors of one module: their stored names, and the module's path as the library that wrote them calls it."""

    path: str
    a: str
    b: str


@frozen
class AdapterKeys:
    """``pairs`` by module, named below the decoder, in sorted order; ``notation`` is ``PEFT`` or ``MLX``."""

    notation: str
    pairs: dict[str, Pair]


def pair_keys(names: Iterable[str], file: Path) -> AdapterKeys:
    """Pair the tensors of an adapter's file.

    Raises ``ModelError`` naming the tensor: for one that is no LoRA factor, for two of the same module and letter, for one
    without its partner, for both notations in one file, and where there is none at all.
    """
    factors: dict[tuple[str, str], str] = {}
    paths: dict[str, str] = {}
    notations: dict[str, str] = {}
    for name in names:
        notation, path, letter = _split(name, file)
        module = _module(path)
        if not module:
            raise ModelError(f"{file}: tensor {shown(name)} names no module")
        other = factors.setdefault((module, letter), name)
        if other != name:
            raise ModelError(
                f"{file}: tensors {shown(other)} and {shown(name)} are both {letter} of the module {shown(module)}"
            )
        paths[module] = path
        notations.setdefault(notation, name)
    if not factors:
        raise ModelError(f"{file}: holds no LoRA tensors: neither PEFT's (...lora_A.weight) nor MLX's (...lora_a)")
    if len(notations) > 1:
        raise ModelError(f"{file}: mixes PEFT's names ({shown(notations[PEFT])}) with MLX's ({shown(notations[MLX])})")
    for (module, letter), name in factors.items():
        partner = "B" if letter == "A" else "A"
        if (module, partner) not in factors:
            raise ModelError(f"{file}: tensor {shown(name)} is {letter} of {shown(module)}, whose {partner} is missing")
    (notation,) = notations
    modules = sorted(paths)
    pairs = {module: Pair(paths[module], factors[module, "A"], factors[module, "B"]) for module in modules}
    return AdapterKeys(notation, pairs)


def _split(name: str, file: Path) -> tuple[str, str, str]:
    """Notation, path and letter (A or B) of a tensor's name; a path of PEFT's without what PEFT puts before the model's."""
    found = _PEFT_KEY.fullmatch(name)
    if found:
        return PEFT, found["path"].removeprefix(_PEFT_WRAPPER), found["letter"]
    found = _MLX_KEY.fullmatch(name)
    if found:
        return MLX, found["path"], found["letter"].upper()
    for pattern, meaning in _EXPLAINED:
        if pattern.fullmatch(name):
            raise ModelError(f"{file}: tensor {shown(name)} is {meaning}")
    raise ModelError(f"{file}: unexpected tensor {shown(name)}: neither PEFT's (...lora_A.weight) nor MLX's (...lora_a) LoRA")


def _module(path: str) -> str:
    """The path below the decoder. Towers beside it (``visual``, ``mtp``) keep their name, so they never pass for its layers."""
    parts = path.split(".")
    first = next((index for index, part in enumerate(parts) if part not in _WRAPPERS), len(parts))
    return ".".join(parts[first:])
