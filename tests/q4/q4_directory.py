"""Makes KHQ4 directories of the models in ``tests/data``, without the command that users have for it."""

import json
from functools import cache
from pathlib import Path

import numpy as np

from lattice_q4 import khq4
from tests.safetensors.safetensors_writer import tensors_of

DATA = Path(__file__).parent.parent / "data"
TIED, UNTIED, NESTED = "tiny-qwen35-tied-bf16", "tiny-qwen35-untied-f32", "tiny-qwen35-nested-bf16"
INDEX = "quantize_index.json"
TEXTS = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json")


def float32_of(dtype, shape, stored):
    """The values of a plain safetensors tensor."""
    if dtype == "BF16":
        return (np.frombuffer(stored, "<u2").astype(np.uint32) << 16).view(np.float32).reshape(shape)
    return np.frombuffer(stored, {"F32": "<f4", "F16": "<f2"}[dtype]).astype(np.float32).reshape(shape)


@cache
def weights(model):
    """Name to float32 values of a model in ``tests/data``."""
    tensors = tensors_of(DATA / model / "model.safetensors")
    return {name: float32_of(*tensor) for name, tensor in tensors.items()}


@cache
def converted(model, *, symmetric=False):
    """File name to bytes, and the entries of the index."""
    files, entries = {}, []
    for name, values in weights(model).items():
        packed = khq4.is_quantised(name)
        if packed is None or "visual." in name:
            continue
        file = khq4.mangled(name) + (".q4" if packed else ".f16")
        files[file] = khq4.encode(values, symmetric=symmetric) if packed else khq4.f16_file(values)
        entries.append(
            {"name": name, "file": file, "quantized": packed, "shape": list(values.shape), "numel": int(values.size)}
        )
    return files, entries


def write(directory, model=TIED, *, index=True, symmetric=False):
    """Fill an empty or missing directory; returns it."""
    directory.mkdir(exist_ok=True)
    files, entries = converted(model, symmetric=symmetric)
    for file, data in files.items():
        (directory / file).write_bytes(data)
    if index:
        (directory / INDEX).write_text(json.dumps(entries))
    for name in TEXTS:
        (directory / name).write_bytes((DATA / model / name).read_bytes())
    return directory
