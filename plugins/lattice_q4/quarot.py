"""What sets a QuaRot directory apart: its weights are rotated offline, so the trunk is read like any other.

Owns the seed's way into the configuration, and the refusal of what cannot be read: rotations that an engine would have to
apply while it computes (R3 and R4, "V1Online"), and an MTP head whose weights were packed. Source: QuaRot (Ashkboos et al.,
2024, arXiv:2404.00456) for the names of the rotations. Must not know files' contents.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lattice_core.errors import ModelError
from lattice_core.untrusted_files import shown_value
from lattice_q4.model_files import CONFIG, INDEX

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from lattice_q4.tensor_file import TensorFile

_SEED, _INDEX_SEED = "quarot_rotation_seed", "quarot_seed"
_ONLINE = ("v1online", "online", "r3", "r4")
_OFF = ("", "none", "off", "offline")


def with_seed(config: dict[str, Any], fields: Mapping[str, Any], directory: Path) -> dict[str, Any]:
    """The configuration with the seed that the index names, if any. Raises ``ModelError`` where the two differ."""
    seed = fields.get(_INDEX_SEED)
    if seed is None:
        return config
    stored = config.get(_SEED)
    if stored not in (None, seed):
        cause = f"{INDEX} was rotated with the seed {shown_value(seed)}, {CONFIG} says {shown_value(stored)}"
        raise ModelError(f"{directory}: {cause}; the files belong to different conversions")
    return {**config, _SEED: seed}


def check_rotations(fields: Mapping[str, Any], directory: Path) -> None:
    """Refuse an artifact whose index declares online rotations. Raises ``ModelError``."""
    mark = _online_mark(fields)
    if mark is not None:
        cause = f"declares rotations that an engine applies while it computes ({shown_value(mark)}), which is not done here"
        raise ModelError(f"{directory / INDEX}: {cause}; convert the model with offline rotations only")


def check_mtp(config: Mapping[str, Any], files: Mapping[str, TensorFile], directory: Path) -> None:
    """Refuse packed tensors of an MTP head in a rotated directory, where they are kept in half precision.

    Raises ``ModelError``.
    """
    if config.get(_SEED) is None:
        return
    for name, file in files.items():
        if file.packed and "mtp" in name.split("."):
            cause = f"holds {shown_value(name)} packed, which a QuaRot model keeps as .f16"
            raise ModelError(f"{directory}: {file.path.name} {cause}; convert the model again")


def _online_mark(value: Any) -> str | None:
    """The first text or key that names an online rotation and is not switched off; None without one."""
    if isinstance(value, str):
        return value if _plain(value) in _ONLINE else None
    if isinstance(value, list):
        return next((mark for entry in value if (mark := _online_mark(entry)) is not None), None)
    if not isinstance(value, dict):
        return None
    for key, entry in value.items():
        named = any(_plain(key).startswith(word) for word in _ONLINE)
        if named and (_says_something(entry) or (isinstance(entry, dict) and not entry)):
            return str(key)
        mark = _online_mark(entry)
        if mark is not None:
            return mark
    return None


def _says_something(value: Any) -> bool:
    if isinstance(value, dict):
        return any(_says_something(entry) for entry in value.values())
    if isinstance(value, list):
        return any(_says_something(entry) for entry in value)
    # Zero is a seed like any other; nothing, false and words for them switch a rotation off.
    return value is not None and value is not False and not (isinstance(value, str) and _plain(value) in _OFF)


def _plain(text: str) -> str:
    return "".join(character for character in text.casefold() if character.isalnum())
