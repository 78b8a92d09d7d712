"""A checkpoint over a safetensors directory, for tests of the backend alone. Implements ``lattice_core.protocols.Checkpoint``.

The format: an 8-byte little-endian header length, a JSON header, then the tensors' bytes.
"""

import json
from pathlib import Path

from lattice_core.types import AffineQuantization, TensorData, TensorSpec


class SafetensorsCheckpoint:
    def __init__(self, path: Path, **config):
        self._path = path
        raw = (path / "model.safetensors").read_bytes()
        start = 8 + int.from_bytes(raw[:8], "little")
        header = json.loads(raw[8:start])
        header.pop("__metadata__", None)
        view = memoryview(raw)[start:]
        self.parts = {
            name: (entry["dtype"], tuple(entry["shape"]), view[slice(*entry["data_offsets"])]) for name, entry in header.items()
        }
        self.config = {**json.loads((path / "config.json").read_text()), **config}
        self.generation_config = json.loads((path / "generation_config.json").read_text())
        self.tokenizer_json = (path / "tokenizer.json").read_bytes()
        self.tokenizer_config = json.loads((path / "tokenizer_config.json").read_text())
        self.chat_template = None
        self.format = "safetensors"
        self.reads = []

    @property
    def nbytes(self):
        return sum(data.nbytes for _, _, data in self.parts.values())

    def tensors(self):
        return {name: self._spec(name) for name in self.parts if not name.endswith((".scales", ".biases"))}

    def read(self, name):
        self.reads.append(name)
        _, _, data = self.parts[name]
        scales, biases = (self.parts.get(self._beside(name, part)) for part in ("scales", "biases"))
        return TensorData(self._spec(name), data, scales and scales[2], biases and biases[2])

    def close(self):
        self.parts.clear()

    def _beside(self, name, part):
        return f"{name.removesuffix('.weight')}.{part}"

    def _spec(self, name):
        dtype, shape, _ = self.parts[name]
        scales = self.parts.get(self._beside(name, "scales"))
        if scales is None:
            return TensorSpec(name, dtype, shape)
        bits, group_size = (self.config["quantization"][key] for key in ("bits", "group_size"))
        return TensorSpec(name, dtype, (shape[0], shape[1] * 32 // bits), AffineQuantization(bits, group_size, scales[0]))
