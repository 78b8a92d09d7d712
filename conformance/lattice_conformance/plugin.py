"""Registers the scripted backend and the scripted fakes. Descriptors only: what they describe is imported when it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lattice_core import hookimpl
from lattice_core.descriptors import BackendSpec, GrammarSpec, LoaderSpec, Option, SamplerSpec

if TYPE_CHECKING:
    from collections.abc import Iterable


@hookimpl
def lattice_backends() -> Iterable[BackendSpec]:
    """The backend ``scripted``."""
    yield BackendSpec(
        name="scripted",
        summary="a model that replies what the prompt's directives say, for tests of frontends and clients",
        factory="lattice_conformance.scripted_backend:backend_from_settings",
        consumes="nothing",
        checkpoint="lattice_conformance.scripted_backend:checkpoint_from_settings",
        options=(
            Option("context", "context of the model in tokens", type="int", default=4096, minimum=16, maximum=1_048_576),
            Option("fail", "fail while loading, or in every step", choices=("load", "steps")),
            Option("gate", "a FIFO: every byte read from it permits one decode token", type="path", metavar="FIFO"),
            Option("adapters", "whether the model can hold adapters", type="bool", default=True),
            Option("load-delay", "seconds that loading takes", type="float", default=0.0, minimum=0, maximum=3600),
        ),
    )


@hookimpl
def lattice_loaders() -> Iterable[LoaderSpec]:
    """The loader of adapters for the scripted backend."""
    yield LoaderSpec(
        name="scripted",
        summary="adapters of the scripted backend: files that end in .scripted",
        factory="lattice_conformance.scripted_adapter:ScriptedLoader",
        probe="lattice_conformance.scripted_adapter:probe",
        adapter_probe="lattice_conformance.scripted_adapter:probe_adapter",
        looks_for="",
    )


@hookimpl
def lattice_samplers() -> Iterable[SamplerSpec]:
    """Samplers that do one thing wrong."""
    yield SamplerSpec(
        name="scripted-raises",
        summary="raises at a row's N-th call",
        factory="lattice_conformance.fakes:RaisingSampler",
        options=(Option("at", "the call that raises, from 0", type="int", default=2, minimum=0),),
    )
    yield SamplerSpec(
        name="scripted-ignores-masks",
        summary="chooses a masked token where there is one",
        factory="lattice_conformance.fakes:MaskIgnoringSampler",
    )


@hookimpl
def lattice_grammars() -> Iterable[GrammarSpec]:
    """A grammar that allows nothing, and one that allows an alphabet."""
    yield GrammarSpec(
        name="scripted-blocks",
        summary="allows no token at all",
        factory="lattice_conformance.fakes:BlockingGrammar",
    )
    yield GrammarSpec(
        name="scripted-alphabet",
        summary="allows the ASCII characters of its specification",
        factory="lattice_conformance.fakes:AlphabetGrammar",
    )
