"""Owns the adapters of the scripted backend: small JSON files, and the loader that opens them. Knows no model.

A file ``NAME.scripted`` holds an object with ``fingerprint``, which the scripted model puts after every reply that it makes
with the adapter, as ``<FINGERPRINT>``; and, all optional: ``nbytes``; ``module``, the name of a module that it changes (the
scripted model has none, and refuses it); ``fail``, ``open`` to raise while it is opened.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from lattice_core.errors import ModelError
from lattice_core.types import LowRankUpdate, Match, TensorData, TensorSpec

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from lattice_core.descriptors import Settings

SUFFIX = ".scripted"
_RANK_ONE = bytes(4)


class ScriptedAdapterError(Exception):
    """What a loader with a bug raises: not an error of Lattice's own tree."""


class ScriptedAdapter:
    """An adapter that is nothing but its fingerprint."""

    def __init__(self, fingerprint: str, nbytes: int = 8, module: str | None = None) -> None:
        self.fingerprint = fingerprint
        self.nbytes = nbytes
        self.closed = False
        self._module = module

    @property
    def format(self) -> str:
        """The word ``scripted``."""
        return "scripted"

    def updates(self) -> Mapping[str, LowRankUpdate]:
        """Nothing, or zeros for the one module."""
        if self._module is None:
            return {}
        a, b = (TensorData(TensorSpec(f"{self._module}.{part}", "F32", (1, 1)), memoryview(_RANK_ONE)) for part in "ab")
        return {self._module: LowRankUpdate(a, b, 1.0)}

    def close(self) -> None:
        """Remember that it was closed."""
        self.closed = True


class ScriptedLoader:
    """A loader of adapters only. Remembers what it opened, for tests to look at."""

    def __init__(self, _settings: Settings | None = None) -> None:
        self.opened: list[ScriptedAdapter] = []

    def open(self, path: Path) -> Any:
        """Raises ``ModelError``: the scripted model lies in no file."""
        raise ModelError(f"{path}: a scripted file is an adapter, no model; start with --backend scripted")

    def open_adapter(self, path: Path) -> ScriptedAdapter:
        """The adapter in the file. Raises ``ModelError``, or ``ScriptedAdapterError`` where the file says so."""
        try:
            told = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise ModelError(f"{path} cannot be read: {error.strerror}") from error
        except ValueError as error:
            raise ModelError(f"{path} is not JSON: {error}") from error
        if not isinstance(told, dict) or not isinstance(told.get("fingerprint"), str):
            raise ModelError(f"{path} has no fingerprint: a scripted adapter is an object with one")
        if told.get("fail") == "open":
            raise ScriptedAdapterError(path.name)
        self.opened.append(ScriptedAdapter(told["fingerprint"], told.get("nbytes", 8), told.get("module")))
        return self.opened[-1]


def probe(_path: Path) -> Match | None:
    """None: no model is scripted in a file."""
    return None


def probe_adapter(path: Path) -> Match | None:
    """Whether the name ends in ``.scripted``."""
    return Match(100, path.name) if path.suffix == SUFFIX and path.is_file() else None
