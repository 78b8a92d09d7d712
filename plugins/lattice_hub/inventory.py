"""What models are on this machine: names, architectures, formats and sizes, from names and headers alone.

A model that cannot be read is an entry with its reason, never an error. It must not know how entries are shown.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import evolve, frozen

from lattice_core.model_names import hub_models, lattice_models, lm_studio_models, model_cache
from lattice_hub.gguf_header import read_gguf_head
from lattice_hub.record import fault, read_record
from lattice_hub.safetensors_header import dominant_dtype
from lattice_hub.staging import resumable_pulls

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_MAX_JSON_BYTES = 64 << 20
_SHARD = re.compile(r"-\d{5}-of-(?P<count>\d{5})$")


@frozen
class ModelEntry:
    """One model. ``name`` is what ``--model`` takes; ``size`` is bytes of weights; ``broken`` says why it cannot be used."""

    name: str
    architecture: str
    format: str
    size: int
    where: str
    path: str
    broken: str = ""


def list_models(environ: Mapping[str, str]) -> list[ModelEntry]:
    """All models of the three caches, Lattice's first, and pulls that stopped half-way."""
    caches = (("lattice", lattice_models), ("hugging face", hub_models), ("lm studio", lm_studio_models))
    found = [entry for where, models in caches for name, path in models(environ) for entry in _entries(name, path, where)]
    found.extend(_stopped_pulls(model_cache(environ)))
    seen: set[str] = set()
    entries = []
    for entry in found:
        # The name finds the first of its namesakes; the others are reached by their paths.
        entries.append(evolve(entry, name=entry.path) if entry.name in seen else entry)
        seen.add(entry.name)
    return entries


def _entries(name: str, path: Path, where: str) -> Iterator[ModelEntry]:
    if path.is_file():
        yield _entry(name, path, where, [path])
        return
    files = sorted(entry for entry in path.iterdir() if entry.is_file())
    for suffix in (".safetensors", ".q4"):
        if weights := [file for file in files if file.suffix == suffix]:
            yield _entry(name, path, where, weights)
            return
    models: dict[str, list[Path]] = {}
    for file in files:
        if file.suffix == ".gguf" and not file.name.startswith("mmproj"):
            models.setdefault(_SHARD.sub("", file.stem), []).append(file)
    for weights in models.values():
        if len(models) == 1:
            yield _entry(name, path, where, weights)
        else:
            yield _entry(f"{name}/{weights[0].name}", weights[0], where, weights)


def _entry(name: str, path: Path, where: str, weights: list[Path]) -> ModelEntry:
    kind = weights[0].suffix.removeprefix(".")
    entry = ModelEntry(name, "?", kind, 0, where, str(path))
    try:
        entry = evolve(entry, size=sum(file.stat().st_size for file in weights))
        record = read_record(path) if path.is_dir() else None
        if record is not None and (wrong := fault(path, record)):
            return evolve(entry, broken=wrong)
        if kind == "gguf":
            return _described_gguf(entry, weights)
        return _described_directory(entry, path, weights)
    except (OSError, ValueError) as error:
        return evolve(entry, broken=_in_words(error))


def _described_gguf(entry: ModelEntry, weights: list[Path]) -> ModelEntry:
    shard = _SHARD.search(weights[0].stem)
    if shard is not None and len(weights) != int(shard["count"]):
        return evolve(entry, broken=f"{len(weights)} of its {int(shard['count'])} files are here")
    try:
        head = read_gguf_head(weights[0])
    except ValueError as error:
        return evolve(entry, broken=f"{weights[0].name}: {error}")
    return evolve(entry, architecture=head.architecture, format=f"gguf {head.file_type}".rstrip())


def _described_directory(entry: ModelEntry, path: Path, weights: list[Path]) -> ModelEntry:
    config = _json(path / "config.json")
    architectures = config.get("architectures")
    first = architectures[0] if isinstance(architectures, list) and architectures else config.get("model_type")
    entry = evolve(entry, architecture=str(first) if first else "?")
    index = path / "model.safetensors.index.json"
    if entry.format == "q4":
        return entry
    if index.is_file():
        listed = _json(index).get("weight_map")
        shards = {str(file) for file in listed.values()} if isinstance(listed, dict) else set()
        if absent := shards - {file.name for file in weights}:
            return evolve(entry, broken=f"{len(absent)} of its {len(shards)} files are missing, such as {min(absent)}")
    dtypes = []
    for file in weights:
        try:
            dtypes.append(dominant_dtype(file))
        except ValueError as error:
            return evolve(entry, broken=f"{file.name}: {error}")
    quantization = config.get("quantization")
    bits = quantization.get("bits") if isinstance(quantization, dict) else None
    kind = f"{bits}-bit" if isinstance(bits, int) else dtypes[0].lower()
    return evolve(entry, format=f"{entry.format} {kind}".rstrip())


def _stopped_pulls(cache: Path) -> Iterator[ModelEntry]:
    for name, directory in resumable_pulls(cache):
        size = 0
        for file in directory.rglob("*"):
            try:
                size += file.stat().st_size if file.is_file() else 0
            except OSError:  # a pull that runs now has moved it
                continue
        shown = name.replace("--", "/", 1)
        reason = f"not complete: `lattice pull hf:{shown}` goes on"
        yield ModelEntry(f"{shown} (partial)", "?", "?", size, "lattice", str(directory), reason)


def _json(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            data = json.loads(file.read(_MAX_JSON_BYTES))
    except FileNotFoundError:
        raise ValueError(f"{path.name} is missing") from None
    except (ValueError, RecursionError):
        raise ValueError(f"{path.name} is not JSON") from None
    if not isinstance(data, dict):
        raise ValueError(f"{path.name} is not a JSON object")  # noqa: TRY004 - it is the file's value that is wrong
    return data


def _in_words(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{Path(str(error.filename)).name}: {error.strerror}" if error.filename else str(error.strerror)
    return str(error) or type(error).__name__
