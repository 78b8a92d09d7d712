"""Runs ``lattice quantize``, and decodes what MLX's affine format holds by the definition of ``AffineQuantization``."""

import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np

from lattice_core.descriptors import Settings
from lattice_q4.loader import Q4Loader
from lattice_q4.quantize_command import quantize
from lattice_safetensors.loader import SafetensorsLoader
from tests.q4.q4_directory import float32_of
from tests.safetensors.safetensors_writer import tensors_of

LOADERS = {"q4": Q4Loader, "mlx": SafetensorsLoader}


def opened(directory, kind):
    return LOADERS[kind](Settings()).open(directory)


def made(source, target, kind, *, bits=None, group_size=None, checkpoint=None):
    """Quantise within this process; ``checkpoint`` stands for what the source holds."""
    checkpoint = checkpoint or opened(source, "mlx")
    context = SimpleNamespace(open_checkpoint=lambda _reference: (source, checkpoint))
    arguments = SimpleNamespace(source=str(source), target=target, format=kind, bits=bits, group_size=group_size)
    assert quantize(arguments, context) == 0
    return target


def environment():
    return {name: value for name, value in os.environ.items() if not name.startswith("LATTICE_")}


def command(*arguments):
    return [sys.executable, "-P", "-m", "lattice_core", "quantize", *map(str, arguments)]


def run(*arguments, **kinds):
    """The command in a process of its own, to its end."""
    return subprocess.run(
        command(*arguments), capture_output=True, text=True, timeout=100, check=False, env=environment(), **kinds
    )


def decoded(words, scales, biases, bits, group_size):
    """Float32 values of rows of u32 words: a row is one little-endian number, element i at bits ``bits * i``."""
    rows = words.reshape(-1, words.shape[-1])
    stream = np.unpackbits(rows.view(np.uint8).reshape(len(rows), -1), axis=1, bitorder="little")
    codes = stream.reshape(len(rows), -1, group_size, bits) @ (1 << np.arange(bits))
    values = codes.astype(np.float32) * scales.reshape(len(rows), -1, 1) + biases.reshape(len(rows), -1, 1)
    return values.reshape(*words.shape[:-1], -1)


def mlx_values(directory, config):
    """Name to float32 values of all tensors of an MLX directory, and name to (bits, group size, scales) of packed ones."""
    stored = {}
    for file in sorted(directory.glob("model*.safetensors")):
        stored |= tensors_of(file)
    values, packed = {}, {}
    default = config["quantization"]
    for name, (dtype, shape, data) in stored.items():
        stem = name.removesuffix(".weight")
        if name.endswith((".scales", ".biases")):
            continue
        if dtype != "U32":
            values[name] = float32_of(dtype, shape, data)
            continue
        scheme = default | default.get(stem, {})
        scales, biases = (float32_of(*stored[f"{stem}.{part}"]) for part in ("scales", "biases"))
        words = np.frombuffer(data, "<u4").reshape(shape)
        values[name] = decoded(words, scales, biases, scheme["bits"], scheme["group_size"])
        packed[name] = (scheme["bits"], scheme["group_size"], scales)
    return values, packed
