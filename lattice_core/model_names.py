"""Turns the name of a model into a path, by looking at the file system alone: never a network call.

Owns where models are kept (Lattice's own cache, the Hugging Face hub's, LM Studio's) and which name finds which of them.
It must not know formats beyond the endings of weight files, nor who put a model where it is.
"""

from __future__ import annotations

import os
import re
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from lattice_core.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

WEIGHT_SUFFIXES = (".safetensors", ".gguf", ".q4")
"""Endings of the files that hold weights."""

RECORD_NAME = "lattice.json"
"""Written last into a directory that ``lattice pull`` completed."""

DEMO_MODEL = "smollm2-135m"

_REPOSITORY = re.compile(r"[\w][\w.-]*/[\w][\w.-]*(/[^/.][^/]*)*")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def resolve_model(
    name: str | None, *, environ: Mapping[str, str] = os.environ, aliases: Mapping[str, str] | None = None
) -> Path:
    """The directory or file that ``name`` stands for; it exists, but whether it is a model is for the loaders to say.

    ``~/x``, absolute paths and paths with a separator are taken as they are; one component is looked up in Lattice's
    cache, then as a ``.gguf`` file in the working directory; ``ORG/NAME`` that is no path in the caches of Lattice, the
    Hugging Face hub and LM Studio. None is ``default_model``. ``aliases`` are the short names that ``lattice pull`` knows,
    with what they stand for.

    Raises:
        ModelError: nothing is there, or the name is not one; the message says what to run instead.
    """
    if name is None:
        return default_model(environ)
    aliases = aliases or {}
    _refuse_malformed(name)
    path = expand_home(name, environ)
    if path.is_absolute() or "/" in name:
        return _path_or_repository(name, path, environ)
    return _single_component(name, environ, aliases)


def default_model(environ: Mapping[str, str] = os.environ) -> Path:
    """The model that is used when none is named: the one in Lattice's cache that arrived last."""
    models = [path for _, path in lattice_models(environ)]
    if not models:
        raise ModelError(f"no model: run `lattice pull {DEMO_MODEL}`, or give --model")
    return max(models, key=_arrival)


def expand_home(name: str, environ: Mapping[str, str] = os.environ) -> Path:
    """``name`` as a path, with a leading ``~`` replaced by the home directory."""
    if name == "~" or name.startswith("~/"):
        return _home(environ) / name[2:]
    return Path(name)


# ------------------------------------------------------------------------------------------------ caches


def model_cache(environ: Mapping[str, str] = os.environ) -> Path:
    """Lattice's own cache: ``LATTICE_MODEL_CACHE``, or ``~/.lattice/models``."""
    chosen = environ.get("LATTICE_MODEL_CACHE")
    return expand_home(chosen, environ) if chosen else _home(environ) / ".lattice" / "models"


def hub_cache(environ: Mapping[str, str] = os.environ) -> Path:
    """The Hugging Face hub's cache, found by the variables that its library reads."""
    for variable, inner in (("HF_HUB_CACHE", ""), ("HUGGINGFACE_HUB_CACHE", ""), ("HF_HOME", "hub")):
        if chosen := environ.get(variable):
            return expand_home(chosen, environ) / inner
    base = environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else _home(environ) / ".cache") / "huggingface" / "hub"


def lm_studio_roots(environ: Mapping[str, str] = os.environ) -> tuple[Path, ...]:
    """Where LM Studio keeps ``ORG/NAME`` directories, its present place first."""
    return (_home(environ) / ".lmstudio" / "models", _home(environ) / ".cache" / "lm-studio" / "models")


def lattice_models(environ: Mapping[str, str] = os.environ) -> Iterator[tuple[str, Path]]:
    """The models in Lattice's cache, as (name for ``--model``, path), in the order of their names."""
    for entry in _visible(model_cache(environ)):
        if holds_weights(entry):
            yield _displayed(entry.name), entry
        else:
            yield from ((f"{entry.name}/{inner.name}", inner) for inner in _visible(entry) if holds_weights(inner))


def hub_models(environ: Mapping[str, str] = os.environ) -> Iterator[tuple[str, Path]]:
    """The models in the hub's cache that have weights, as (``ORG/NAME``, directory of the snapshot)."""
    for entry in _visible(hub_cache(environ)):
        kind, *parts = entry.name.split("--")
        snapshot = _hub_snapshot(entry) if kind == "models" and parts else None
        if snapshot is not None:
            yield "/".join(parts), snapshot


def lm_studio_models(environ: Mapping[str, str] = os.environ) -> Iterator[tuple[str, Path]]:
    """The models of LM Studio, as (``ORG/NAME``, directory)."""
    for root in lm_studio_roots(environ):
        for org in _visible(root):
            yield from ((f"{org.name}/{entry.name}", entry) for entry in _visible(org) if holds_weights(entry))


def holds_weights(path: Path) -> bool:
    """Whether ``path`` is a file of weights, or a directory with one (a link to nothing does not count)."""
    try:
        entries = list(path.iterdir()) if path.is_dir() else [path]
        return any(entry.suffix in WEIGHT_SUFFIXES and entry.is_file() for entry in entries)
    except OSError:
        return False


# ------------------------------------------------------------------------------------------------ look-ups


def _single_component(name: str, environ: Mapping[str, str], aliases: Mapping[str, str]) -> Path:
    cached = model_cache(environ) / name
    if _exists(cached):
        return cached
    here = Path(name)
    if here.suffix == ".gguf" and holds_weights(here):
        return here
    missing = f"model directory not found: {cached}"
    if name in aliases:
        raise ModelError(f"{missing}; run `lattice pull {name}` to get {aliases[name]}")
    if _exists(here):
        raise ModelError(f"{missing}; for the one in this directory write --model ./{name}")
    known = [found for found, _ in lattice_models(environ)]
    if near := get_close_matches(name, [*known, *aliases], n=1):
        raise ModelError(f"{missing}; did you mean {near[0]}? `lattice models` lists what is here")
    raise ModelError(f"{missing}; `lattice models` lists what is here, `lattice pull` gets more")


def _path_or_repository(name: str, path: Path, environ: Mapping[str, str]) -> Path:
    if _exists(path):
        return path
    if path.is_absolute() or _REPOSITORY.fullmatch(name) is None:
        raise ModelError(f"model directory not found: {path}; check the path, `lattice models` lists what is here")
    for candidate in _repository_places(name, environ):
        if _exists(candidate):
            return candidate
    org, repository, *_ = name.split("/")
    raise ModelError(
        f"model directory not found: {name} is no path here and in none of the caches of Lattice, the Hugging Face hub and"
        f" LM Studio; run `lattice pull hf:{org}/{repository}`"
    )


def _repository_places(name: str, environ: Mapping[str, str]) -> Iterator[Path]:
    org, repository, *rest = name.split("/")
    cache = model_cache(environ)
    yield cache.joinpath(f"{org}--{repository}", *rest)
    yield cache / name
    snapshot = _hub_snapshot(hub_cache(environ) / f"models--{org}--{repository}")
    if snapshot is not None:
        yield snapshot.joinpath(*rest)
    for root in lm_studio_roots(environ):
        yield root / name


def _hub_snapshot(repository: Path) -> Path | None:
    """The snapshot that ``refs/main`` names, else the newest; None where no snapshot has weights."""
    snapshots = repository / "snapshots"
    try:
        main = (repository / "refs" / "main").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        main = ""
    if main and "/" not in main and holds_weights(snapshots / main):
        return snapshots / main
    return max((entry for entry in _visible(snapshots) if holds_weights(entry)), key=_arrival, default=None)


def _refuse_malformed(name: str) -> None:
    if not name.strip() or _CONTROL.search(name):
        raise ModelError(f"--model {name!r} is not a name: it is empty or holds control characters")
    if name.startswith(".") and "/" not in name:
        raise ModelError(f"--model {name} is not a name: write ./{name} for a path, `lattice models` lists what is here")
    if name.startswith("hf:"):
        bare = name.removeprefix("hf:").partition("@")[0]
        raise ModelError(f"--model {name!r} is what `lattice pull` takes; once pulled, the model's name is {bare}")


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # no permission to look, or a name longer than the file system allows
        return False


def _visible(directory: Path) -> list[Path]:
    try:
        return sorted(entry for entry in directory.iterdir() if not entry.name.startswith("."))
    except OSError:
        return []


def _displayed(entry: str) -> str:
    org, separator, repository = entry.partition("--")
    return f"{org}/{repository}" if separator and repository else entry


def _arrival(path: Path) -> float:
    for stamp in (path / RECORD_NAME, path):
        try:
            return stamp.stat().st_mtime
        except OSError:
            continue
    return 0.0


def _home(environ: Mapping[str, str]) -> Path:
    home = environ.get("HOME")
    return Path(home) if home else Path.home()
