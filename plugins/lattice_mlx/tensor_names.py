"""One notation for the tensors of a language model, whatever prefixes a checkpoint stores them under.

Canonical names are those of text-only checkpoints: ``model.embed_tokens.weight``, ``model.layers.N...``, ``lm_head.weight``,
``mtp...``. Published vision-language checkpoints store ``model.language_model...``, those written by mlx-lm
``language_model.model...``. Owns that translation; knows no architecture.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import evolve, frozen

from lattice_core.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lattice_core.types import TensorSpec

_PREFIXES = (
    ("model.language_model.", "model."),
    ("language_model.model.", "model."),
    ("language_model.lm_head.", "lm_head."),
    ("language_model.mtp.", "mtp."),
    ("model.mtp.", "mtp."),
)
_OTHER_TOWERS = ("model.visual.", "visual.", "vision_tower.", "model.vision_tower.", "vision_model.", "model.audio_tower.")


@frozen
class LanguageTensors:
    """The tensors of the language model by canonical name (``spec.name`` too), and the names they are stored under.

    ``skipped`` are tensors of other towers, by stored name.
    """

    specs: Mapping[str, TensorSpec]
    stored: Mapping[str, str]
    skipped: tuple[str, ...]


def language_tensors(specs: Mapping[str, TensorSpec]) -> LanguageTensors:
    """Translate a checkpoint's names. Raises ``ModelError`` where two tensors mean the same."""
    found: dict[str, TensorSpec] = {}
    stored: dict[str, str] = {}
    skipped: list[str] = []
    for name, spec in specs.items():
        if name.startswith(_OTHER_TOWERS):
            skipped.append(name)
            continue
        canonical = _canonical(name)
        if canonical in stored:
            raise ModelError(f"the checkpoint holds {stored[canonical]} and {name}, which are the same tensor")
        found[canonical] = spec if canonical == name else evolve(spec, name=canonical)
        stored[canonical] = name
    return LanguageTensors(found, stored, tuple(skipped))


def _canonical(name: str) -> str:
    for prefix, short in _PREFIXES:
        if name.startswith(prefix):
            return short + name[len(prefix) :]
    return name
