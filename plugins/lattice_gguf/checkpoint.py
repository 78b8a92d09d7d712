"""An opened GGUF model: what the loader found, and tensors read on demand from the memory map.

Owns the way from stored bytes to ``TensorData``: views where nothing changes, rows and columns moved where the file orders
them in its own way, blocks repacked or expanded. No more than one tensor is held at a time. Must not know metadata.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import evolve, frozen

from lattice_core.errors import ModelError
from lattice_core.types import AffineQuantization, TensorData, TensorSpec
from lattice_gguf.affine import AFFINE_TYPES, GROUP, pack
from lattice_gguf.expand import EXPANDED_TYPES, expand

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from lattice_gguf.affine import Packed
    from lattice_gguf.container import GgufFile, TensorInfo
    from lattice_gguf.regrouping import Regrouping

_EXPANDED = "F16"


@frozen(eq=False)
class Source:
    """Where a tensor's bytes are, and what is to be done to them.

    ``shape`` is the one that is handed out: that of the file, save for dimensions of 1. ``decay`` is as in ``rules.Rule``.
    """

    file: GgufFile
    info: TensorInfo
    shape: tuple[int, ...]
    regrouping: Regrouping | None = None
    decay: bool = False


def spec_of(kind: str) -> str:
    """The dtype in which tensors of a stored type are handed out: ``U32`` for packed ones."""
    if kind in AFFINE_TYPES:
        return "U32"
    return _EXPANDED if kind in EXPANDED_TYPES else kind


class GgufCheckpoint:
    """Implements ``protocols.Checkpoint``.

    The specification that comes with ``read`` is the one that holds: a scale too large for the F16 that ``tensors`` promised
    widens that tensor's scales, or its weights, to F32.
    """

    def __init__(
        self,
        *,
        path: Path,
        config: Mapping[str, Any],
        generation_config: Mapping[str, Any],
        tokenizer_json: bytes,
        tokenizer_config: Mapping[str, Any],
        chat_template: str | None,
        format: str,  # noqa: A002 - the name that the protocol gives it
        sources: Mapping[str, Source],
    ) -> None:
        self.path = path
        self.config = config
        self.generation_config = generation_config
        self.tokenizer_json = tokenizer_json
        self.tokenizer_config = tokenizer_config
        self.chat_template = chat_template
        self.format = format
        self.nbytes = sum(source.info.nbytes for source in sources.values())
        self._specs = {name: _spec(name, source) for name, source in sources.items()}
        self._sources: Mapping[str, Source] | None = sources

    def tensors(self) -> Mapping[str, TensorSpec]:
        """All tensors by name."""
        return self._specs

    def read(self, name: str) -> TensorData:
        """The bytes of one tensor. Raises ``ModelError`` for an unknown name, a damaged tensor, and after ``close``."""
        if self._sources is None:
            raise ModelError(f"{self.path}: tensor {name!r} is read after the file was closed")
        if name not in self._sources:
            raise ModelError(f"{self.path}: has no tensor {name!r}")
        source, spec = self._sources[name], self._specs[name]
        if source.decay:
            return TensorData(spec, self._logarithm_of_decay(source))
        stored = _rows_in_order(source)
        kind = source.info.type
        if kind.name in AFFINE_TYPES:
            packed = pack(AFFINE_TYPES[kind.name], _blocks(stored, kind.nbytes))
            self._check_finite(source, packed.scales, packed.biases)
            return _packed(spec, packed, source)
        if kind.name in EXPANDED_TYPES:
            weights = expand(EXPANDED_TYPES[kind.name], _blocks(stored, kind.nbytes))
            self._check_finite(source, weights)
            dtype = _EXPANDED if weights.dtype == np.float16 else "F32"
            return TensorData(evolve(spec, dtype=dtype), _bytes_of(_columns_in_order(weights, source)))
        return TensorData(spec, _plain_columns_in_order(stored, source))

    def close(self) -> None:
        """Let go of the files; the maps live on as long as a view into them does."""
        self._sources = None

    def _check_finite(self, source: Source, *parts: np.ndarray) -> None:
        if not all(np.isfinite(part).all() for part in parts):
            cause = f"tensor {source.info.name!r} has {source.info.type.name} scales that are not finite"
            raise ModelError(f"{source.file.path}: {cause}: the file is damaged, get it again")

    def _logarithm_of_decay(self, source: Source) -> memoryview:
        """``A_log``, float32, from ``-exp(A_log)``; computed in float64, so that it is rounded once."""
        rates = np.frombuffer(_rows_in_order(source), "<f4")
        if not np.isfinite(rates).all() or (rates >= 0).any():
            cause = f"tensor {source.info.name!r} holds rates of decay that are not negative numbers"
            raise ModelError(f"{source.file.path}: {cause}: the file is damaged, get it again")
        return _bytes_of(np.log(-rates.astype(np.float64)).astype("<f4"))


def _spec(name: str, source: Source) -> TensorSpec:
    kind = AFFINE_TYPES.get(source.info.type.name)
    quantization = AffineQuantization(kind.bits, GROUP, kind.scale_dtype) if kind else None
    return TensorSpec(name, spec_of(source.info.type.name), source.shape, quantization)


def _rows_in_order(source: Source) -> memoryview:
    """The stored bytes, with rows moved where they have to be. Rows are whole blocks, so this holds for any stored type."""
    stored = source.file.read(source.info)
    if source.regrouping is None or source.regrouping.columns:
        return stored
    return _bytes_of(source.regrouping.apply(np.frombuffer(stored, np.uint8).reshape(source.shape[0], -1)))


def _columns_in_order(elements: np.ndarray, source: Source) -> np.ndarray:
    """Single elements in any shape, with columns moved where they have to be."""
    if source.regrouping is None or not source.regrouping.columns:
        return elements
    return source.regrouping.apply(elements.reshape(source.shape))


def _plain_columns_in_order(stored: memoryview, source: Source) -> memoryview:
    if source.regrouping is None or not source.regrouping.columns:
        return stored
    return _bytes_of(_columns_in_order(np.frombuffer(stored, f"<u{source.info.type.nbytes}"), source))


def _blocks(stored: memoryview, nbytes: int) -> np.ndarray:
    return np.frombuffer(stored, np.uint8).reshape(-1, nbytes)


def _packed(spec: TensorSpec, packed: Packed, source: Source) -> TensorData:
    """Columns move by whole groups: the loader refuses any others."""
    parts = [packed.words, packed.scales, packed.biases]
    if source.regrouping is not None and source.regrouping.columns:
        groups = (source.shape[0], source.shape[1] // GROUP, -1)
        parts = [source.regrouping.in_runs(GROUP).apply(part.reshape(groups)) for part in parts]
    quantization = spec.quantization and evolve(spec.quantization, scale_dtype=packed.scale_dtype)
    words, scales, biases = map(_bytes_of, parts)
    return TensorData(evolve(spec, quantization=quantization), words, scales, biases)


def _bytes_of(array: np.ndarray) -> memoryview:
    return memoryview(array.data).cast("B")
