"""``quantize_index.json``: which tensor is in which file. Two forms: an array of entries, or an object with ``tensors``.

Owns the index's limits and the confinement of its file names to the directory. Must not know tensor files' contents.
"""

from __future__ import annotations

from math import prod
from pathlib import PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING, Any

from attrs import field, frozen

from lattice_core.errors import ModelError
from lattice_core.untrusted_files import is_there, read_json, shown_value
from lattice_q4.model_files import HALF_SUFFIX, INDEX, PACKED_SUFFIX

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_MAX_BYTES = 16 << 20


@frozen
class Entry:
    """A tensor and its file, relative to the directory; ``shape`` None: the index does not say it."""

    name: str
    file: str
    shape: tuple[int, ...] | None = None


@frozen
class QuantizeIndex:
    """Entries by their file, and what an index in the form of an object says beside them."""

    entries: Mapping[str, Entry] = field(factory=dict)
    fields: Mapping[str, Any] = field(factory=dict)


def read_index(directory: Path) -> QuantizeIndex:
    """The index of a directory; an empty one where there is none. Raises ``ModelError`` for one that is there and broken."""
    path = directory / INDEX
    if not is_there(path):
        return QuantizeIndex()
    found = read_json(path, limit=_MAX_BYTES)
    listed = found.get("tensors") if isinstance(found, dict) else found
    if not isinstance(listed, list):
        raise ModelError(f"{path}: is neither a list of tensors nor an object with one called 'tensors'")
    entries: dict[str, Entry] = {}
    names: set[str] = set()
    for number, stored in enumerate(listed):
        entry = _entry(stored, number, path)
        if entry.name in names or entry.file in entries:
            twice = entry.name if entry.name in names else entry.file
            raise ModelError(f"{path}: names {shown_value(twice)} twice: it is damaged")
        names.add(entry.name)
        entries[entry.file] = entry
    if not entries:
        raise ModelError(f"{path}: names no tensor; quantize the model again, or remove this file")
    beside = {key: value for key, value in found.items() if key != "tensors"} if isinstance(found, dict) else {}
    return QuantizeIndex(entries, beside)


def _entry(stored: Any, number: int, path: Path) -> Entry:
    if not isinstance(stored, dict):
        raise ModelError(f"{path}: entry {number} is {shown_value(stored)}, an object is expected")
    name, file = _text(stored, "name", number, path), _confined(_text(stored, "file", number, path), path)
    suffix = PurePosixPath(file).suffix
    if suffix not in (PACKED_SUFFIX, HALF_SUFFIX):
        cause = f"tensor {shown_value(name)} is in {shown_value(file)}"
        raise ModelError(f"{path}: {cause}; only *{PACKED_SUFFIX} and *{HALF_SUFFIX} files are read")
    quantised = stored.get("quantized")
    if quantised is not None and quantised is not (suffix == PACKED_SUFFIX):
        cause = f"tensor {shown_value(name)} is in {shown_value(file)}, but its 'quantized' is {shown_value(quantised)}"
        raise ModelError(f"{path}: {cause}: it is damaged")
    return Entry(name, file, _shape(stored, name, path))


def _text(stored: dict[str, Any], key: str, number: int, path: Path) -> str:
    found = stored.get(key)
    if not isinstance(found, str) or not found:
        raise ModelError(f"{path}: entry {number} has the {key} {shown_value(found)}, a text is expected")
    return found


def _shape(stored: dict[str, Any], name: str, path: Path) -> tuple[int, ...] | None:
    shape, count = stored.get("shape"), stored.get("numel")
    if shape is None:
        return None
    if not isinstance(shape, list) or not all(type(size) is int and size >= 0 for size in shape):
        raise ModelError(f"{path}: tensor {shown_value(name)} has the impossible shape {shown_value(shape)}")
    if count is not None and count != prod(shape):
        raise ModelError(
            f"{path}: tensor {shown_value(name)} has the shape {shown_value(shape)}, but its 'numel' is {shown_value(count)}"
        )
    return tuple(shape)


def _confined(file: str, path: Path) -> str:
    """The name in its plain form. Raises ``ModelError`` for one that leaves the directory, read as any system would."""
    for kind in (PurePosixPath(file), PureWindowsPath(file)):
        if kind.anchor or ".." in kind.parts or "\0" in file:
            raise ModelError(f"{path}: the file {shown_value(file)} is not inside the directory of the model")
    return str(PurePosixPath(file))
