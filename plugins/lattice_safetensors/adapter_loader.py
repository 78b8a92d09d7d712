"""Opening of an adapter: its files, the checks on every tensor, and the updates that are handed out.

Owns the orientation of the factors (A [rank, in], B [out, rank]), their limits, and the fingerprint. Everything that can be
wrong with the files is found here, in one pass over the bytes; whether the modules fit a model is for the backend to say.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from attrs import frozen

from lattice_core.errors import ModelError
from lattice_core.types import LowRankUpdate, TensorData, TensorSpec
from lattice_safetensors.adapter_config import MAX_RANK
from lattice_safetensors.adapter_files import CONFIG, adapter_files
from lattice_safetensors.adapter_keys import MLX, pair_keys
from lattice_safetensors.adapter_scaling import MetadataScaling, read_scaling
from lattice_safetensors.adapter_values import WIDTH_OF, first_not_finite, transposed
from lattice_safetensors.container import SafetensorsFile
from lattice_safetensors.header import shown

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from lattice_safetensors.adapter_keys import Pair
    from lattice_safetensors.adapter_scaling import Scaling
    from lattice_safetensors.header import TensorInfo

_MAX_BYTES = 10 << 30
_EMBEDDING = "embed_tokens"


@frozen
class _Factor:
    """One stored matrix, and whether it stands transposed in the file."""

    info: TensorInfo
    turned: bool

    @property
    def spec(self) -> TensorSpec:
        rows, columns = self.info.shape
        return TensorSpec(self.info.name, self.info.dtype, (columns, rows) if self.turned else (rows, columns))

    def read(self, file: SafetensorsFile) -> TensorData:
        """Row-major bytes of ``spec``: a view into the file, or the turned copy."""
        stored = file.read(self.info.name)
        if self.turned:
            rows, columns = self.info.shape
            stored = transposed(stored, self.info.dtype, (rows, columns))
        return TensorData(self.spec, stored)


@frozen
class _Update:
    """What ``LowRankUpdate`` is made of."""

    a: _Factor
    b: _Factor
    scale: float


class SafetensorsAdapter:
    """Implements ``protocols.AdapterCheckpoint``. ``path`` is the file with the tensors."""

    def __init__(self, file: SafetensorsFile, format: str, updates: Mapping[str, _Update]) -> None:  # noqa: A002 - the protocol's name
        self.path = file.path
        self.format = format
        self.nbytes = file.nbytes
        self._file = file
        self._updates = updates
        self.fingerprint = self._checked()

    def updates(self) -> Mapping[str, LowRankUpdate]:
        """By module. PEFT's factors are views into the file, MLX's are turned copies. Raises ``ModelError`` after ``close``."""
        return {
            module: LowRankUpdate(update.a.read(self._file), update.b.read(self._file), update.scale)
            for module, update in self._updates.items()
        }

    def close(self) -> None:
        """Let go of the file; the map lives on as long as a view into it does."""
        self._file.close()

    def _checked(self) -> str:
        """The digest over modules, shapes, scales and matrices as they are handed out, with every number found finite."""
        digest = hashlib.blake2b(digest_size=32)
        for module, update in self._updates.items():
            digest.update(repr((module, update.scale.hex())).encode())
            for factor in (update.a, update.b):
                info = factor.info
                bad = first_not_finite(self._file.read(info.name), info.dtype)
                if bad is not None:
                    place = [bad // info.shape[1], bad % info.shape[1]]
                    raise ModelError(f"{self.path}: tensor {shown(info.name)} is infinite or not a number at {place}")
                digest.update(repr((info.dtype, factor.spec.shape)).encode())
                digest.update(factor.read(self._file).data)
                self._file.release(info.name)
        return digest.hexdigest()


def open_adapter(path: Path) -> SafetensorsAdapter:
    """Open a directory of PEFT's or mlx-lm's, or one safetensors file in the notation of either.

    Reads all bytes once, one matrix in memory at a time. Raises ``ModelError`` that names the file, the tensor and the cause.
    """
    files = adapter_files(path)
    described, scaling = read_scaling(files.config) if files.config is not None else (None, None)
    file = SafetensorsFile(files.weights)
    try:
        notation, updates = _found(file, described, scaling)
        return SafetensorsAdapter(file, notation, updates)
    except BaseException:
        file.close()
        raise


def _found(file: SafetensorsFile, described: str | None, scaling: Scaling | None) -> tuple[str, dict[str, _Update]]:
    """The notation of the tensors, and the updates by module, in sorted order."""
    if file.nbytes > _MAX_BYTES:
        raise ModelError(f"{file.path}: holds {file.nbytes} bytes; adapters of at most {_MAX_BYTES} are opened")
    keys = pair_keys(file.tensors, file.path)
    if described not in (None, keys.notation):
        raise ModelError(
            f"{file.path}: its tensors are named as {keys.notation} names them, the {CONFIG} beside it is {described}'s:"
            " they do not belong together"
        )
    if scaling is None:
        scaling = MetadataScaling(file.metadata, file.path)
    return keys.notation, {module: _update(file, pair, module, keys.notation, scaling) for module, pair in keys.pairs.items()}


def _update(file: SafetensorsFile, pair: Pair, module: str, notation: str, scaling: Scaling) -> _Update:
    """One module's factors, checked against each other and the limits."""
    first, second = file.tensors[pair.a], file.tensors[pair.b]
    for info in (first, second):
        _check(info, file.path)
    # PEFT stores A [rank, in] and B [out, rank], MLX lora_a [in, rank] and lora_b [rank, out].
    axes = (1, 0) if notation == MLX else (0, 1)
    rank, other = first.shape[axes[0]], second.shape[axes[1]]
    if rank != other:
        raise ModelError(
            f"{file.path}: tensors {shown(first.name)} {list(first.shape)} and {shown(second.name)} {list(second.shape)}"
            f" do not fit: ranks {rank} and {other}"
        )
    if rank > MAX_RANK:
        raise ModelError(f"{file.path}: tensor {shown(first.name)} has the rank {rank}; at most {MAX_RANK} are supported")
    scale = scaling.scale(pair.path, rank, first.name)
    if notation == MLX and module.rpartition(".")[2] == _EMBEDDING:
        # Its weight is [vocabulary, hidden] and the update lora_a lora_b: the product B A as it is stored.
        return _Update(_Factor(second, turned=False), _Factor(first, turned=False), scale)
    turned = notation == MLX
    return _Update(_Factor(first, turned), _Factor(second, turned), scale)


def _check(info: TensorInfo, file: Path) -> None:
    what = f"{file}: tensor {shown(info.name)}"
    if info.dtype not in WIDTH_OF:
        raise ModelError(f"{what} is {info.dtype}; adapters are {', '.join(WIDTH_OF)}")
    if len(info.shape) != 2:  # noqa: PLR2004 - a matrix
        more = " (adapters on experts are not supported)" if len(info.shape) == 3 else ""  # noqa: PLR2004 - one matrix per expert
        raise ModelError(f"{what} is {list(info.shape)}, no matrix{more}")
    if 0 in info.shape:
        raise ModelError(f"{what} is {list(info.shape)}: an empty matrix; save the adapter again, unsharded")
