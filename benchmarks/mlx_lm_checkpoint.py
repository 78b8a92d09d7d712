"""Writes a checkpoint that Lattice opened as directories that mlx-lm loads: the same weights in three forms.

Owns the layout of such a directory. Needs numpy only, so that nothing of MLX is in this process.
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import safetensors_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lattice_core.protocols import Checkpoint
    from lattice_core.types import AffineQuantization, TensorData

FORMS = ("q4", "f32", "bf16")
"""``q4``: packed as in the file, scales widened to float32. ``f32``, ``bf16``: dense."""

_FLOATS = {"F16": "<f2", "F32": "<f4"}
_NAMES = {"<f4": "F32", "<u4": "U32", "<u2": "BF16"}


def write(checkpoint: Checkpoint, form: str, folder: Path) -> None:
    """Make ``folder`` and write config, tokenizer and weights of ``form`` into it."""
    folder.mkdir()
    config: dict[str, Any] = dict(checkpoint.config)
    if form == "q4":
        config["quantization"] = _quantization(checkpoint)
    template = {"chat_template": checkpoint.chat_template, "tokenizer_class": "PreTrainedTokenizerFast"}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "tokenizer.json").write_bytes(checkpoint.tokenizer_json)
    (folder / "tokenizer_config.json").write_text(json.dumps({**checkpoint.tokenizer_config, **template}), encoding="utf-8")
    arrays = {name: array for tensor in checkpoint.tensors() for name, array in _arrays(checkpoint.read(tensor), form)}
    tensors = [
        safetensors_file.Tensor(name, _NAMES[array.dtype.newbyteorder("<").str], array.shape, partial(iter, (array,)))
        for name, array in arrays.items()
    ]
    safetensors_file.write(folder / "model.safetensors", tensors, "mlx")


def _quantization(checkpoint: Checkpoint) -> dict[str, Any]:
    """mlx-lm's record: the scheme of most tensors, and by module the ones that differ."""
    schemes = {
        name.removesuffix(".weight"): {"group_size": spec.quantization.group_size, "bits": spec.quantization.bits}
        for name, spec in checkpoint.tensors().items()
        if spec.quantization is not None
    }
    if not schemes:
        raise SystemExit("the model has no quantised tensors: this comparison wants a quantised GGUF file")
    most = max(schemes.values(), key=list(schemes.values()).count)
    return most | {name: scheme for name, scheme in schemes.items() if scheme != most}


def _arrays(tensor: TensorData, form: str) -> Iterator[tuple[str, np.ndarray]]:
    name, scheme = tensor.spec.name, tensor.spec.quantization
    if scheme is None:
        dense = np.frombuffer(tensor.data, _FLOATS[tensor.spec.dtype]).reshape(tensor.spec.shape).astype("<f4")
    else:
        words, scales, biases = _packed(tensor, scheme)
        if form == "q4":
            stem = name.removesuffix("weight")
            yield from ((name, words), (f"{stem}scales", scales), (f"{stem}biases", biases))
            return
        groups = _unpacked(words, scheme.bits).reshape(*scales.shape, scheme.group_size)
        dense = (groups * scales[..., None] + biases[..., None]).reshape(tensor.spec.shape)
    yield name, safetensors_file.bfloat16(dense) if form == "bf16" else dense


def _packed(tensor: TensorData, scheme: AffineQuantization) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Words u32 [rows, columns * bits / 32], scales and biases f32 [rows, columns / group]."""
    if tensor.scales is None or tensor.biases is None:
        raise ValueError(f"{tensor.spec.name} is quantised and has no scales and biases")
    rows = tensor.spec.shape[0]
    kind = _FLOATS[scheme.scale_dtype]
    scales, biases = (np.frombuffer(part, kind).astype("<f4").reshape(rows, -1) for part in (tensor.scales, tensor.biases))
    return np.frombuffer(tensor.data, "<u4").reshape(rows, -1), scales, biases


def _unpacked(words: np.ndarray, bits: int) -> np.ndarray:
    """The packed integers as f32 [rows, columns]."""
    shifts = np.arange(0, 32, bits, dtype=np.uint32)
    return ((words[..., None] >> shifts) & np.uint32((1 << bits) - 1)).astype("<f4").reshape(len(words), -1)
