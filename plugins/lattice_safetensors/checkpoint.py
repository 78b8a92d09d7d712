"""An opened safetensors model: what the loader found, and tensors read on demand from the memory maps.

Every tensor is handed out as it is stored, as a view; nothing is copied or converted. Must not know files beside the weights'.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from lattice_core.errors import ModelError
from lattice_core.types import TensorData, TensorSpec
from lattice_core.untrusted_files import read_tokenizer
from lattice_safetensors.header import shown

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from lattice_safetensors.packed_weights import Part, Weight


class SafetensorsCheckpoint:
    """Implements ``protocols.Checkpoint``. ``path`` is the model's directory."""

    def __init__(
        self,
        *,
        path: Path,
        config: Mapping[str, Any],
        generation_config: Mapping[str, Any],
        tokenizer_config: Mapping[str, Any],
        chat_template: str | None,
        format: str,  # noqa: A002 - the name that the protocol gives it
        weights: Mapping[str, Weight],
    ) -> None:
        self.path = path
        self.config = config
        self.generation_config = generation_config
        self.tokenizer_config = tokenizer_config
        self.chat_template = chat_template
        self.format = format
        self.nbytes = sum(weight.nbytes for weight in weights.values())
        self._specs = {name: weight.spec for name, weight in weights.items()}
        self._weights: Mapping[str, Weight] | None = weights
        self._recent: tuple[Part, ...] = ()

    @cached_property
    def tokenizer_json(self) -> bytes:
        """``tokenizer.json``, read when it is asked for: a run may use that of another directory. Raises ``ModelError``."""
        return read_tokenizer(self.path)

    def tensors(self) -> Mapping[str, TensorSpec]:
        """All weights by their stored names; scales and biases come with the weight that they belong to."""
        return self._specs

    def read(self, name: str) -> TensorData:
        """The bytes of one weight. Raises ``ModelError`` for an unknown name, and after ``close``.

        Memory that the weight read before took is given back to the system; views of it stay valid.
        """
        if self._weights is None:
            raise ModelError(f"{self.path}: tensor {shown(name)} is read after the model was closed")
        if name not in self._weights:
            raise ModelError(f"{self.path}: has no tensor {shown(name)}")
        weight = self._weights[name]
        for part in self._recent:
            part.file.release(part.info.name)
        self._recent = weight.parts
        return TensorData(weight.spec, *(part.file.read(part.info.name) for part in weight.parts))

    def close(self) -> None:
        """Let go of the files; the maps live on as long as a view into them does."""
        self._weights, self._recent = None, ()
