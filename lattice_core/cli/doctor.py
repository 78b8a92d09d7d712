"""``lattice plugins doctor``: tries every plugin as far as it goes without a model.

Broken is what the plugin's author must mend: a plugin that failed, a factory that cannot be imported although all that it
requires is there, options that collide. A part that lacks an optional requirement is unavailable, not broken.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from attrs import asdict, frozen

from lattice_core.causes import cause_of
from lattice_core.descriptors import BackendSpec, ChatFormatSpec, CommandSpec, LoaderSpec, resolve
from lattice_core.errors import ExitCode
from lattice_core.plugins import Status
from lattice_core.registry import unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

    from lattice_core.cli.session import Session
    from lattice_core.descriptors import Spec
    from lattice_core.plugins import PluginRecord


@frozen
class Finding:
    """One line of the report. ``state`` is ``ok``, ``broken``, ``unavailable`` or ``disabled``."""

    plugin: str
    what: str
    state: str
    cause: str = ""


def run_doctor(session: Session, records: Iterable[PluginRecord], *, as_json: bool) -> int:
    """Print the findings; the exit status is 4 where something is broken."""
    findings = [finding for record in records for finding in _examine(record)]
    findings += [
        Finding(name, "selection", "broken", "named by -p or LATTICE_PLUGINS, but not installed")
        for name in session.host.unknown
    ]
    if session.collision is not None:
        findings.append(Finding("-", "options", "broken", str(session.collision)))
    if as_json:
        json.dump([asdict(finding) for finding in findings], sys.stdout, indent=2)
        sys.stdout.write("\n")
    else:
        for finding in findings:
            cause = f": {finding.cause}" if finding.cause else ""
            sys.stdout.write(f"{finding.state:<12} {finding.plugin}: {finding.what}{cause}\n")
    broken = sum(finding.state == "broken" for finding in findings)
    if not as_json:
        sys.stdout.write(f"{broken} broken of {len(findings)} checked\n")
    return int(ExitCode.PLUGIN if broken else ExitCode.OK)


def _examine(record: PluginRecord) -> Iterator[Finding]:
    label = record.label
    if record.status is not Status.LOADED:
        state = "broken" if record.status is Status.FAILED else "disabled"
        yield Finding(label, "plugin", state, record.cause)
        return
    yield Finding(label, "plugin", "ok", f"{len(record.provides)} part(s)")
    for provided in record.provides:
        what = f"{provided.kind} {provided.spec.name}"
        lacking = unavailable(provided.spec)
        if lacking:
            yield Finding(label, what, "unavailable", lacking.removeprefix("unavailable: "))
            continue
        problems = list(_unresolvable(provided.spec))
        yield Finding(label, what, "broken" if problems else "ok", "; ".join(problems))


def _unresolvable(spec: Spec) -> Iterator[str]:
    """What of the descriptor cannot be imported or called."""
    for name, target in _targets(spec):
        try:
            found = resolve(target)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001  # an import may raise anything, and the report must go on
            yield f"{name} {target}: {cause_of(error)}"
            continue
        if not callable(found):
            yield f"{name} {target} is not callable"
    if isinstance(spec, BackendSpec) and spec.consumes not in ("tensors", "path", "nothing"):
        yield f"consumes {spec.consumes!r} is not one of tensors, path, nothing"
    if isinstance(spec, BackendSpec) and spec.consumes in ("path", "nothing") and spec.checkpoint is None:
        yield f"it consumes {spec.consumes} and so must have a checkpoint factory"


def _targets(spec: Spec) -> Iterator[tuple[str, Callable[..., Any] | str]]:
    yield "factory", spec.factory
    if isinstance(spec, LoaderSpec | ChatFormatSpec):
        yield "probe", spec.probe
    if isinstance(spec, LoaderSpec) and spec.adapter_probe is not None:
        yield "adapter_probe", spec.adapter_probe
    if isinstance(spec, BackendSpec) and spec.checkpoint is not None:
        yield "checkpoint", spec.checkpoint
    if isinstance(spec, CommandSpec):
        yield "arguments", spec.arguments
