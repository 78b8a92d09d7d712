"""An opened KHQ4 model: what the loader found, and tensors read on demand, one file each.

Holds no tensor: each ``read`` makes the bytes that it hands out. Must not know files beside the tensors'.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from lattice_core.errors import ModelError
from lattice_core.types import AffineQuantization, TensorData, TensorSpec
from lattice_core.untrusted_files import read_tokenizer, shown_value
from lattice_q4.khq4 import BLOCK
from lattice_q4.payload import expanded, halves, packed

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from lattice_q4.tensor_file import TensorFile

_SCHEME = AffineQuantization(bits=4, group_size=BLOCK, scale_dtype="F16")


class Q4Checkpoint:
    """Implements ``protocols.Checkpoint``. ``path`` is the model's directory."""

    format = "q4"

    def __init__(
        self,
        *,
        path: Path,
        config: Mapping[str, Any],
        generation_config: Mapping[str, Any],
        tokenizer_config: Mapping[str, Any],
        chat_template: str | None,
        files: Mapping[str, TensorFile],
    ) -> None:
        self.path = path
        self.config = config
        self.generation_config = generation_config
        self.tokenizer_config = tokenizer_config
        self.chat_template = chat_template
        self.nbytes = sum(file.nbytes for file in files.values())
        self._specs = {name: _spec(name, file) for name, file in files.items()}
        self._files: Mapping[str, TensorFile] | None = files

    @cached_property
    def tokenizer_json(self) -> bytes:
        """``tokenizer.json``, read when it is asked for: a run may use that of another directory. Raises ``ModelError``."""
        return read_tokenizer(self.path)

    def tensors(self) -> Mapping[str, TensorSpec]:
        """All tensors by name: packed, F16, or F32 where blocks reach over the ends of rows."""
        return self._specs

    def read(self, name: str) -> TensorData:
        """The bytes of one tensor. Raises ``ModelError`` for an unknown name, a damaged file, and after ``close``."""
        if self._files is None:
            raise ModelError(f"{self.path}: tensor {shown_value(name)} is read after the model was closed")
        if name not in self._files:
            raise ModelError(f"{self.path}: has no tensor {shown_value(name)}")
        file, spec = self._files[name], self._specs[name]
        if not file.packed:
            return TensorData(spec, halves(file))
        if spec.quantization is None:
            return TensorData(spec, expanded(file))
        parts = packed(file)
        return TensorData(spec, parts.words, parts.scales, parts.biases)

    def close(self) -> None:
        """Forget the files; what was handed out stays valid."""
        self._files = None


def _spec(name: str, file: TensorFile) -> TensorSpec:
    if not file.packed:
        return TensorSpec(name, "F16", file.shape)
    return TensorSpec(name, "U32", file.shape, _SCHEME) if file.aligned else TensorSpec(name, "F32", file.shape)
