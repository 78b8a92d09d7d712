"""The weights of a model as one set of tensors: a single file, or shards and the index that says what is where.

Owns the index's limits, the confinement of shard names to the model's directory, and the exact accounting: every tensor is in
the shard that the index names and no shard holds one that it does not name. Must not know configurations.
"""

from __future__ import annotations

import os
from pathlib import PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING

from lattice_core.errors import ModelError
from lattice_core.untrusted_files import read_object
from lattice_safetensors.container import SafetensorsFile
from lattice_safetensors.header import shown

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from lattice_safetensors.model_files import ModelFiles

_MAX_INDEX = 64 << 20
_MAX_ENTRIES = 1_000_000
# An entry is one value; what else an index holds (metadata) is small.
_MAX_VALUES = _MAX_ENTRIES + 1000
_NAMED = 5


def open_weights(files: ModelFiles) -> dict[str, SafetensorsFile]:
    """The file of every tensor, by the tensor's stored name. Raises ``ModelError``."""
    if files.single is not None:
        file = SafetensorsFile(files.single)
        return dict.fromkeys(file.tensors, file)
    if files.index is None:
        raise ModelError(f"{files.directory}: holds no weights")
    return _accounted(files.index, read_index(files.index))


def read_index(path: Path) -> dict[str, str]:
    """``weight_map`` of an index: the shard of every tensor, a path within the directory of the index.

    Raises ``ModelError``.
    """
    found = read_object(path, limit=_MAX_INDEX, values=_MAX_VALUES).get("weight_map")
    if not isinstance(found, dict):
        raise ModelError(f"{path}: has no object 'weight_map'")
    if len(found) > _MAX_ENTRIES:
        raise ModelError(f"{path}: names {len(found)} tensors, at most {_MAX_ENTRIES} are possible")
    if not found:
        raise ModelError(f"{path}: names no tensor")
    for tensor, shard in found.items():
        if not isinstance(shard, str) or not shard:
            raise ModelError(f"{path}: tensor {shown(tensor)} has no shard's name")
    for shard in set(found.values()):
        _confine(shard, path)
    return found


def _confine(shard: str, path: Path) -> None:
    """Refuse a name that leaves the directory, read as any system would. Links are followed: caches of hubs use them."""
    for kind in (PurePosixPath(shard), PureWindowsPath(shard)):
        if kind.anchor or ".." in kind.parts or "\0" in shard:
            raise ModelError(f"{path}: the shard {shown(shard)} is not inside the directory of the model")


def _accounted(index: Path, named: Mapping[str, str]) -> dict[str, SafetensorsFile]:
    directory = index.parent
    # In the order of the names, so that the same fault is reported every time.
    shards = sorted(set(named.values()))
    missing = [shown(shard) for shard in shards if not os.path.exists(directory / shard)]  # noqa: PTH110 - false for any name
    if missing:
        listed = ", ".join(missing[:_NAMED]) + (f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else "")
        raise ModelError(f"{directory}: {len(missing)} of {len(shards)} shards are missing: {listed}; get them too")
    files = {shard: SafetensorsFile(directory / shard) for shard in shards}
    for tensor, shard in named.items():
        if tensor not in files[shard].tensors:
            raise ModelError(f"{index}: is stale: tensor {shown(tensor)} is not in {shard}, where the index says")
    for shard, file in files.items():
        for tensor in file.tensors:
            if named.get(tensor) != shard:
                where = f"puts it into {named[tensor]}" if tensor in named else "does not name it"
                raise ModelError(f"{file.path}: holds tensor {shown(tensor)}, but the index {where}: the index is stale")
    return {tensor: files[shard] for tensor, shard in named.items()}
