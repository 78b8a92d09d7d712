"""Chooses a part where none was named: a loader by what lies at a path, a chat format by the template, a backend by default.

Probes are foreign code: one that raises is reported and counts as no match. Equal best scores are an error that names both,
so that the choice never depends on the order of installation.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any, cast

from lattice_core.errors import AdapterError, ModelError, PluginError
from lattice_core.registry.availability import unavailable
from lattice_core.registry.calls import call
from lattice_core.types import Match

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lattice_core.descriptors import BackendSpec, ChatFormatSpec, LoaderSpec
    from lattice_core.protocols import Vocabulary
    from lattice_core.registry.catalog import Registry
    from lattice_core.registry.registration import Registration

log = logging.getLogger("lattice.registry")


def select_loader(registry: Registry, path: Path) -> Registration:
    """The loader that matches ``path`` best.

    Raises ``ModelError`` that says what each loader looked for, ``PluginError`` for equal best matches or where the best
    loader's requirements are missing.
    """
    if not path.exists():
        msg = f"model directory not found: {path}"
        raise ModelError(msg)
    winners, broken = _best(registry, path, "probe", lambda spec: spec.probe)
    if not winners:
        raise ModelError(_no_loader(registry, path, broken))
    if len(winners) > 1:
        found = " and ".join(f"{part.label} ({detail})" for detail, part in winners)
        choices = " or ".join(f"--loader {registry.public_name(part)}" for _, part in winners)
        msg = f"{path}: two loaders match equally well: {found}; say {choices}"
        raise PluginError(msg)
    return registry.check_available(winners[0][1])


def select_adapter_loader(registry: Registry, path: Path) -> Registration:
    """The loader that matches the adapter at ``path`` best.

    Raises ``AdapterError``, and ``PluginError`` as ``select_loader``.
    """
    # Not `path.exists`, which raises where it may not look.
    if not os.path.exists(path):  # noqa: PTH110  # as the line above says
        msg = f"adapter not found: {path}; check the path"
        raise AdapterError(msg)
    winners, broken = _best(registry, path, "adapter_probe", lambda spec: spec.adapter_probe)
    if not winners:
        asked = [registry.public_name(part) for part in registry.all("loader") if cast("LoaderSpec", part.spec).adapter_probe]
        failed = f"; broken: {'; '.join(broken)}" if broken else ""
        names = ", ".join(asked) or "no loader of adapters is installed"
        msg = f"{path} holds no adapter that a loader knows (asked: {names}){failed}{registry.absent_note()}"
        raise AdapterError(msg)
    if len(winners) > 1:
        found = " and ".join(f"{part.label} ({detail})" for detail, part in winners)
        msg = f"{path}: two loaders match equally well: {found}; leave one plugin out with -p no:NAME"
        raise PluginError(msg)
    return registry.check_available(winners[0][1])


def _best(
    registry: Registry, path: Path, what: str, probe_of: Callable[[LoaderSpec], Callable[[Path], Match | None] | str | None]
) -> tuple[list[tuple[str, Registration]], list[str]]:
    """The loaders whose probe, called ``what``, gives the best score, each with its detail; and what broken probes said."""
    matches: list[tuple[int, str, Registration]] = []
    broken: list[str] = []
    for part in registry.all("loader"):
        probe = probe_of(cast("LoaderSpec", part.spec))
        if probe is None:
            continue
        try:
            match = call(part, probe, what, path)
        except Exception as error:  # noqa: BLE001  # one broken probe must not keep the other loaders from the model
            lacking = unavailable(part.spec)
            broken.append(f"{registry.public_name(part)} is {lacking}" if lacking else str(error))
            log.warning("%s", broken[-1])
            continue
        if match is None:
            continue
        if not isinstance(match, Match):
            broken.append(f"{part.label}: {what} returned a {type(match).__name__}, not a Match or None")
            log.warning("%s", broken[-1])
            continue
        matches.append((match.score, match.detail, part))
    best = max((score for score, _, _ in matches), default=0)
    return [(detail, part) for score, detail, part in matches if score == best], broken


def _no_loader(registry: Registry, path: Path, broken: list[str]) -> str:
    sought = "; ".join(
        f"{registry.public_name(part)}: {looks_for}"
        for part in registry.all("loader")
        if (looks_for := cast("LoaderSpec", part.spec).looks_for)
    )
    sought = sought or "no loader is installed"
    failed = f"; broken: {'; '.join(broken)}" if broken else ""
    return f"{path} holds no model that a loader knows (looked for: {sought}){failed}{registry.absent_note()}"


def select_chat_format(registry: Registry, template: str | None, vocabulary: Vocabulary) -> Registration:
    """The chat format that serves this template and vocabulary best. Raises ``PluginError`` where none or two do."""
    scores: list[tuple[int, Registration]] = []
    for part in registry.all("chat-format"):
        try:
            score: Any = call(part, cast("ChatFormatSpec", part.spec).probe, "probe", template, vocabulary)
        except Exception as error:  # noqa: BLE001  # as for loaders
            log.warning("%s", error)
            continue
        if isinstance(score, int) and not isinstance(score, bool):
            scores.append((score, part))
        elif score is not None:
            log.warning("%s: probe returned a %s, not an integer or None", part.label, type(score).__name__)
    if not scores:
        names = ", ".join(registry.names("chat-format")) or "none installed"
        msg = f"no chat format fits this model ({names}); name one with --chat-format{registry.absent_note()}"
        raise PluginError(msg)
    best = max(score for score, _ in scores)
    winners = [part for score, part in scores if score == best]
    if len(winners) > 1:
        found = " and ".join(part.label for part in winners)
        choices = " or ".join(f"--chat-format {registry.public_name(part)}" for part in winners)
        msg = f"two chat formats fit equally well: {found}; say {choices}"
        raise PluginError(msg)
    return registry.check_available(winners[0])


def default_backend(registry: Registry) -> Registration:
    """The backend to use where none is named: the available one that consumes tensors, first-party before others.

    Raises ``PluginError`` where there is none (with what each one needs) or where several strangers could be meant.
    """
    candidates = [part for part in registry.all("backend") if cast("BackendSpec", part.spec).consumes == "tensors"]
    available = [part for part in candidates if not unavailable(part.spec)]
    own = [part for part in available if part.first_party]
    if own:
        return own[0]
    if len(available) == 1:
        return available[0]
    if available:
        choices = " or ".join(f"--backend {registry.public_name(part)}" for part in available)
        msg = f"several backends are available; say {choices}"
        raise PluginError(msg)
    reasons = "; ".join(f"{registry.public_name(part)} is {unavailable(part.spec)}" for part in candidates)
    msg = f"no backend is available: {reasons or 'none is installed'}{registry.absent_note()}"
    raise PluginError(msg)
