"""Directories that a download left behind, and indices that do not say what is there."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tests.safetensors.damage import INDEX, NORM, SINGLE, broken, copy, rewrite_index
from tests.safetensors.safetensors_writer import document, split, tensors_of

if TYPE_CHECKING:
    from pathlib import Path


@broken
def build_truncated_file(directory: Path) -> str:
    copy(directory)
    path = directory / SINGLE
    size = path.stat().st_size
    os.truncate(path, size - 1000)
    return f"model.safetensors: is incomplete: {size} bytes are expected, {size - 1000} are here; get it again"


@broken
def build_truncated_header(directory: Path) -> str:
    copy(directory)
    os.truncate(directory / SINGLE, 500)
    return "model.safetensors: is incomplete: the header alone needs"


@broken
def build_empty_file(directory: Path) -> str:
    copy(directory)
    (directory / SINGLE).write_bytes(b"")
    return "model.safetensors: is incomplete: 0 bytes are no safetensors file"


@broken
def build_preallocated_file(directory: Path) -> str:
    copy(directory)
    (directory / SINGLE).write_bytes(bytes(100_000))
    return "a header of 0 bytes"


@broken
def build_truncated_shard(directory: Path) -> str:
    copy(directory)
    shard = split(directory)[1]
    os.truncate(directory / shard, (directory / shard).stat().st_size // 2)
    return f"{shard}: is incomplete"


@broken
def build_missing_shard(directory: Path) -> str:
    copy(directory)
    first, _, last = split(directory, 3)
    (directory / first).unlink()
    (directory / last).unlink()
    return f"2 of 3 shards are missing: '{first}', '{last}'; get them too"


@broken
def build_dangling_shard(directory: Path) -> str:
    copy(directory)
    shard = split(directory)[0]
    (directory / shard).unlink()
    (directory / shard).symlink_to(directory / "blob")
    return f"1 of 2 shards are missing: '{shard}'"


@broken
def build_missing_index(directory: Path) -> str:
    copy(directory)
    split(directory)
    (directory / INDEX).unlink()
    return "the index model.safetensors.index.json is missing beside 2 shards"


@broken
def build_git_lfs_pointer(directory: Path) -> str:
    copy(directory)
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 418752\n"
    (directory / SINGLE).write_text(pointer)
    return "model.safetensors: is a Git LFS pointer"


@broken
def build_stale_index(directory: Path) -> str:
    copy(directory)
    first, _ = split(directory)
    rewrite_index(directory, lambda names: names.update({"model.layers.9.extra": first}))
    return f"is stale: tensor 'model.layers.9.extra' is not in {first}"


@broken
def build_index_names_another_shard(directory: Path) -> str:
    copy(directory)
    shards = split(directory)

    def swap(names: dict) -> None:
        names[NORM] = shards[1 - shards.index(names[NORM])]

    rewrite_index(directory, swap)
    return f"is stale: tensor '{NORM}' is not in "


@broken
def build_index_lacks_tensor(directory: Path) -> str:
    copy(directory)
    split(directory)
    rewrite_index(directory, lambda names: names.pop(NORM))
    return f"holds tensor '{NORM}', but the index does not name it"


@broken
def build_tensor_in_two_shards(directory: Path) -> str:
    copy(directory)
    shards = split(directory)
    stored = [tensors_of(directory / shard) for shard in shards]
    owner = 0 if NORM in stored[0] else 1
    stored[1 - owner][NORM] = stored[owner][NORM]
    (directory / shards[1 - owner]).write_bytes(document(stored[1 - owner]))
    return f"holds tensor '{NORM}', but the index puts it into {shards[owner]}"


@broken
def build_index_duplicate_key(directory: Path) -> str:
    copy(directory)
    shard = split(directory)[0]
    path = directory / INDEX
    path.write_text(path.read_text().replace('"weight_map": {', f'"weight_map": {{"{NORM}": "{shard}", '))
    return f'model.safetensors.index.json: is no valid JSON: the key "{NORM}" stands twice'


@broken
def build_index_path_traversal(directory: Path) -> str:
    copy(directory)
    split(directory)
    rewrite_index(directory, lambda names: names.update({NORM: "../model-00001-of-00002.safetensors"}))
    return "the shard '../model-00001-of-00002.safetensors' is not inside the directory of the model"


@broken
def build_index_inner_path_traversal(directory: Path) -> str:
    copy(directory)
    split(directory)
    rewrite_index(directory, lambda names: names.update({NORM: "sub/../../model.safetensors"}))
    return "is not inside the directory of the model"


@broken
def build_index_windows_path(directory: Path) -> str:
    copy(directory)
    split(directory)
    rewrite_index(directory, lambda names: names.update({NORM: "..\\model.safetensors"}))
    return "is not inside the directory of the model"


@broken
def build_index_absolute_path(directory: Path) -> str:
    copy(directory)
    shard = split(directory)[0]
    rewrite_index(directory, lambda names: names.update({NORM: str(directory / shard)}))
    return "is not inside the directory of the model"


@broken
def build_index_without_weight_map(directory: Path) -> str:
    copy(directory)
    split(directory)
    (directory / INDEX).write_text('{"metadata": {"total_size": 1}}')
    return "model.safetensors.index.json: has no object 'weight_map'"


@broken
def build_index_of_numbers(directory: Path) -> str:
    copy(directory)
    split(directory)
    rewrite_index(directory, lambda names: names.update({NORM: 1}))
    return f"tensor '{NORM}' has no shard's name"


@broken
def build_index_cut(directory: Path) -> str:
    copy(directory)
    split(directory)
    os.truncate(directory / INDEX, 300)
    return "model.safetensors.index.json: is no valid JSON"
