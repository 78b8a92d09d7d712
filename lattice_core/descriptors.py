"""What a plugin registers: small immutable records. Reading one imports nothing of the part that it describes.

A factory is a callable or a dotted path ``package.module:name``; heavy imports happen inside it. It is called with one
``Settings`` (a chat format's factory: with the template, the vocabulary and the settings).
"""

from __future__ import annotations

import re
from importlib import import_module
from typing import TYPE_CHECKING, Any

from attrs import field, frozen

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from lattice_core.protocols import Vocabulary
    from lattice_core.types import Match

NAME = re.compile(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*")
OPTION_TYPES = ("str", "int", "float", "bool", "path", "bytes")


def _check_name(_instance: object, attribute: Any, value: str) -> None:
    if not isinstance(value, str) or NAME.fullmatch(value) is None:
        msg = f"{attribute.name} {value!r} is not a name: use lower-case words of letters and digits joined by - or _"
        raise ValueError(msg)


def _check_summary(_instance: object, _attribute: Any, value: str) -> None:
    if not value.strip() or "\n" in value:
        msg = f"summary {value!r} must be one line of text"
        raise ValueError(msg)


def _check_type(_instance: object, _attribute: Any, value: str) -> None:
    if value not in OPTION_TYPES:
        msg = f"option type {value!r} is not one of {', '.join(OPTION_TYPES)}"
        raise ValueError(msg)


@frozen
class Option:
    """One setting of a plugin, or of the core; its flag, variable, configuration key and help come from this record.

    ``name`` is in kebab case. For a plugin's option the flag is ``--PLUGIN-NAME``, the variable ``LATTICE_PLUGIN_NAME``
    and the configuration key ``name`` in the table ``[PLUGIN]``; the core's own have no plugin part. ``type`` ``bytes`` takes
    ``512M`` or ``8G``. ``aliases`` are further flags, ``env_aliases`` further variables. A value below ``minimum``, above
    ``maximum`` or not among ``choices`` is an error that names the flag.
    """

    name: str = field(validator=_check_name)
    help: str
    type: str = field(default="str", validator=_check_type)
    default: Any = None
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    repeatable: bool = False
    metavar: str | None = None
    aliases: tuple[str, ...] = ()
    env_aliases: tuple[str, ...] = ()


@frozen
class Settings:
    """The values a factory is called with: the plugin's own options, and the core's options that parts share.

    Keys are option names in kebab case. ``sources`` tells where a core value came from: ``flag``, ``environment``,
    ``config`` or ``default``. A backend's factory also finds the architectures that plugins registered for it, by name.
    """

    own: Mapping[str, Any] = field(factory=dict)
    core: Mapping[str, Any] = field(factory=dict)
    sources: Mapping[str, str] = field(factory=dict)
    architectures: Mapping[str, ArchitectureSpec] = field(factory=dict)


@frozen(kw_only=True)
class Spec:
    """What every descriptor has. ``requires`` are import names, probed without importing; ``install`` is the way out."""

    name: str = field(validator=_check_name)
    summary: str = field(validator=_check_summary)
    factory: Callable[..., Any] | str
    requires: tuple[str, ...] = ()
    install: str = ""
    options: tuple[Option, ...] = ()

    def resolve(self) -> Callable[..., Any]:
        """The factory itself; imports it when it is a dotted path."""
        return resolve(self.factory)


def resolve(target: Callable[..., Any] | str) -> Callable[..., Any]:
    """A callable from itself or from ``package.module:name``."""
    if not isinstance(target, str):
        return target
    module, _, name = target.partition(":")
    found: Callable[..., Any] = getattr(import_module(module), name)
    return found


@frozen(kw_only=True)
class LoaderSpec(Spec):
    """A storage format. ``probe(path)`` looks at names and at most a few bytes, and answers with a ``Match`` or None.

    ``factory(settings) -> Loader``. ``looks_for`` says in words what ``probe`` wants to see. ``adapter_probe(path)`` does the
    same for adapters; a loader that has it implements ``AdapterLoader``.
    """

    probe: Callable[[Path], Match | None] | str
    looks_for: str
    adapter_probe: Callable[[Path], Match | None] | str | None = None


@frozen(kw_only=True)
class BackendSpec(Spec):
    """A way to run models. ``factory(settings) -> Backend``. ``consumes``: ``tensors``, ``path`` or ``nothing``.

    A backend that consumes nothing needs no model directory: ``load`` is called with a checkpoint that it makes itself
    (``checkpoint(settings) -> Checkpoint``), so that the tokenizer is known.
    """

    consumes: str = "tensors"
    checkpoint: Callable[[Settings], Any] | str | None = None


@frozen(kw_only=True)
class ArchitectureSpec(Spec):
    """An architecture that a backend learns to run. What ``factory`` is and makes is for that backend to say.

    ``backend`` is its name. ``classes`` are the names in ``architectures`` of a configuration that the architecture serves,
    ``model_types`` the values of ``model_type``, for configurations that name no class.
    """

    backend: str
    classes: tuple[str, ...] = ()
    model_types: tuple[str, ...] = ()


@frozen(kw_only=True)
class SamplerSpec(Spec):
    """A way to choose tokens. ``factory(settings) -> Sampler``."""


@frozen(kw_only=True)
class GrammarSpec(Spec):
    """A kind of constraint. ``factory(settings) -> Grammar``; a request names it."""


@frozen(kw_only=True)
class ChatFormatSpec(Spec):
    """A chat format. ``factory(template, vocabulary, settings) -> ChatFormat``.

    ``probe(template, vocabulary)`` gives a score, or None where the format cannot serve; the highest score is the default.
    """

    probe: Callable[[str | None, Vocabulary], int | None] | str


@frozen(kw_only=True)
class FrontendSpec(Spec):
    """A way in. ``factory(settings) -> Frontend``, called before the model is loaded: the place to take ports and files."""


@frozen(kw_only=True)
class SourceSpec(Spec):
    """Where models come from. ``factory(settings) -> ModelSource``.

    ``aliases`` maps short names (``smollm2-135m``) to what they stand for in words; ``schemes`` are prefixes (``hf``).
    """

    aliases: Mapping[str, str] = field(factory=dict)
    schemes: tuple[str, ...] = ()


@frozen(kw_only=True)
class CommandSpec(Spec):
    """A command of ``lattice``. ``factory(args, context) -> int`` runs it and returns the exit status.

    ``arguments(parser)`` adds its arguments to an ``argparse`` parser. ``core_options`` names the core's options whose flags
    the command takes too, such as ``dtype``; one that names a part (``backend``, ``loader``) brings the flags of all parts of
    that kind. Their values stand in ``context.values``.
    """

    arguments: Callable[[ArgumentParser], None] | str
    factory: Callable[[Namespace, Any], int] | str
    core_options: tuple[str, ...] = ()


@frozen(kw_only=True)
class TelemetrySpec(Spec):
    """An observer of engine events. ``factory(settings) -> Observer``."""
