"""The hooks of the plugin group ``lattice``. Each collects descriptors; none is called while tokens are made.

A plugin is a module (or object) named by an entry point in the group ``lattice``. It implements any of these functions,
marked with ``lattice_core.hookimpl``, and returns records of the type named here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pluggy import HookspecMarker

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lattice_core.descriptors import (
        ArchitectureSpec,
        BackendSpec,
        ChatFormatSpec,
        CommandSpec,
        FrontendSpec,
        GrammarSpec,
        LoaderSpec,
        SamplerSpec,
        SourceSpec,
        TelemetrySpec,
    )

hookspec = HookspecMarker("lattice")


@hookspec
def lattice_loaders() -> Iterable[LoaderSpec]:  # type: ignore[empty-body]
    """Storage formats of models.

    Example::

        from lattice_core import hookimpl
        from lattice_core.descriptors import LoaderSpec
        from lattice_core.types import Match

        def probe(path):
            return Match(50, "tensors.npz") if (path / "tensors.npz").is_file() else None

        @hookimpl
        def lattice_loaders():
            yield LoaderSpec(name="npz", summary="numpy archives", factory="my_npz.loader:NpzLoader", probe=probe,
                             looks_for="tensors.npz")
    """


@hookspec
def lattice_backends() -> Iterable[BackendSpec]:  # type: ignore[empty-body]
    """Ways to run models.

    Example::

        from lattice_core import hookimpl
        from lattice_core.descriptors import BackendSpec

        @hookimpl
        def lattice_backends():
            yield BackendSpec(name="torch", summary="PyTorch", factory="my_torch.backend:TorchBackend", requires=("torch",),
                              install="pip install torch")
    """


@hookspec
def lattice_architectures() -> Iterable[ArchitectureSpec]:  # type: ignore[empty-body]
    """Model architectures for a backend that another plugin brings.

    Example::

        from lattice_core import hookimpl
        from lattice_core.descriptors import ArchitectureSpec

        @hookimpl
        def lattice_architectures():
            yield ArchitectureSpec(name="olmo2", summary="OLMo 2", backend="mlx", factory="my_olmo.olmo2:read",
                                   classes=("Olmo2ForCausalLM",), model_types=("olmo2",))
    """


@hookspec
def lattice_samplers() -> Iterable[SamplerSpec]:  # type: ignore[empty-body]
    """Ways to choose tokens.

    Example::

        from lattice_core import hookimpl
        from lattice_core.descriptors import SamplerSpec

        class Coldest:
            def __init__(self, settings): ...
            def new_state(self, params, prompt, vocab_size): return None
            def sample(self, logits, state, u): return int(logits.argmin())

        @hookimpl
        def lattice_samplers():
            yield SamplerSpec(name="coldest", summary="always the least likely token", factory=Coldest)
    """


@hookspec
def lattice_grammars() -> Iterable[GrammarSpec]:  # type: ignore[empty-body]
    """Kinds of constraints on the output.

    Example::

        from lattice_core import hookimpl
        from lattice_core.descriptors import GrammarSpec

        @hookimpl
        def lattice_grammars():
            yield GrammarSpec(name="digits", summary="digits only", factory="my_grammar:Digits")
    """


@hookspec
def lattice_chat_formats() -> Iterable[ChatFormatSpec]:  # type: ignore[empty-body]
    """Renderers of chat messages.

    Example::

        from lattice_core import hookimpl
        from lattice_core.descriptors import ChatFormatSpec

        def probe(template, vocabulary):
            return 10 if vocabulary.token_id("[INST]") is not None else None

        @hookimpl
        def lattice_chat_formats():
            yield ChatFormatSpec(name="inst", summary="[INST] turns", factory="my_format:Inst", probe=probe)
    """


@hookspec
def lattice_frontends() -> Iterable[FrontendSpec]:  # type: ignore[empty-body]
    """Ways in.

    Example::

        from lattice_core import hookimpl
        from lattice_core.descriptors import FrontendSpec

        @hookimpl
        def lattice_frontends():
            yield FrontendSpec(name="irc", summary="an IRC bot", factory="my_irc:Bot")
    """


@hookspec
def lattice_model_sources() -> Iterable[SourceSpec]:  # type: ignore[empty-body]
    """Where ``lattice pull`` gets models from.

    Example::

        from lattice_core import hookimpl
        from lattice_core.descriptors import SourceSpec

        @hookimpl
        def lattice_model_sources():
            yield SourceSpec(name="nas", summary="our file server", factory="my_nas:Nas", schemes=("nas",))
    """


@hookspec
def lattice_commands() -> Iterable[CommandSpec]:  # type: ignore[empty-body]
    """Commands of ``lattice``.

    Example::

        from lattice_core import hookimpl
        from lattice_core.descriptors import CommandSpec

        def arguments(parser):
            parser.add_argument("who")

        def run(args, context):
            print("hello", args.who)
            return 0

        @hookimpl
        def lattice_commands():
            yield CommandSpec(name="greet", summary="say hello", factory=run, arguments=arguments)
    """


@hookspec
def lattice_telemetry() -> Iterable[TelemetrySpec]:  # type: ignore[empty-body]
    """Observers of engine events, called on a thread of their own.

    Example::

        from lattice_core import hookimpl
        from lattice_core.descriptors import TelemetrySpec

        @hookimpl
        def lattice_telemetry():
            yield TelemetrySpec(name="statsd", summary="sends counters to statsd", factory="my_statsd:Statsd")
    """
