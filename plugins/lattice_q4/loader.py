"""The loader: opens a KHQ4 directory and puts together what its files say.

Owns the order of the checks and the names of tensors: those of the index, else those that file names tell. Everything that
headers and names can show to be wrong is found here; the numbers in a file are checked when it is read.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

from lattice_core.errors import ModelError
from lattice_core.untrusted_files import is_there, read_chat_template, read_settings, shown_value
from lattice_q4.checkpoint import Q4Checkpoint
from lattice_q4.configuration import check_head, read_config
from lattice_q4.model_files import INDEX, PACKED_SUFFIX, tensor_files
from lattice_q4.quantize_index import Entry, read_index
from lattice_q4.quarot import check_mtp, check_rotations, with_seed
from lattice_q4.tensor_file import TensorFile, read_tensor_file
from lattice_q4.tensor_names import original_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lattice_core.descriptors import Settings

_LOG = logging.getLogger("lattice.q4")
_NAMED = 5


class Q4Loader:
    """Implements ``protocols.Loader``. There are no settings."""

    def __init__(self, settings: Settings) -> None:
        del settings

    def open(self, path: Path) -> Q4Checkpoint:
        """Open a model's directory. Raises ``ModelError`` that names the file and the cause."""
        present = tensor_files(path)
        config = read_config(path)
        index = read_index(path)
        check_rotations(index.fields, path)
        config = with_seed(config, index.fields, path)
        entries = _entries(path, present, index.entries)
        check_head(config, entries, path)
        files = {name: _checked(path, entry) for name, entry in entries.items()}
        check_mtp(config, files, path)
        tokenizer_config = read_settings(path / "tokenizer_config.json")
        return Q4Checkpoint(
            path=path,
            config=config,
            generation_config=read_settings(path / "generation_config.json"),
            tokenizer_config=tokenizer_config,
            chat_template=read_chat_template(path, tokenizer_config),
            files=files,
        )


def _entries(directory: Path, present: tuple[str, ...], listed: Mapping[str, Entry]) -> dict[str, Entry]:
    """The entry of every tensor by its name; files that the index does not list are named by their file names."""
    for file in listed:
        if not Path(os.path.realpath((directory / file).parent)).is_relative_to(os.path.realpath(directory)):
            raise ModelError(f"{directory / file}: a symbolic link leads it out of the directory of the model")
    missing = [file for file in sorted(listed) if not is_there(directory / file)]
    if missing:
        some = ", ".join(missing[:_NAMED]) + (f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else "")
        raise ModelError(f"{directory}: {len(missing)} of {len(listed)} tensor files are missing: {some}; get them too")
    others = [file for file in present if file not in listed]
    if listed and others:
        _LOG.warning("%s: %s does not list %d of the tensor files, such as %s", directory, INDEX, len(others), others[0])
    found: dict[str, Entry] = {}
    for entry in (*listed.values(), *(_told(directory, file) for file in others)):
        other = found.setdefault(entry.name, entry)
        if other is not entry:
            raise ModelError(
                f"{directory}: {other.file} and {entry.file} are the same tensor {shown_value(entry.name)}; remove one"
            )
    if not any(entry.file.endswith(PACKED_SUFFIX) for entry in found.values()):
        raise ModelError(f"{directory}: holds no *{PACKED_SUFFIX} file of a tensor")
    return found


def _told(directory: Path, file: str) -> Entry:
    name = original_name(file[: file.rindex(".")])
    if name is None:
        cause = f"which tensor it holds cannot be told from its name, and {INDEX} does not say it"
        raise ModelError(f"{directory / file}: {cause}; get that file of the conversion, or remove this one")
    return Entry(name, file)


def _checked(directory: Path, entry: Entry) -> TensorFile:
    path = directory / entry.file
    file = read_tensor_file(path)
    if entry.shape not in (None, file.shape):
        raise ModelError(f"{path}: has the shape {list(file.shape)}, {INDEX} says {list(entry.shape or ())}")
    return file
