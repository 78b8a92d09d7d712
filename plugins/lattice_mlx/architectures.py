"""Which architecture runs a configuration: the backend's own, and those that plugins registered for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from attrs import frozen

from lattice_core.causes import cause_of
from lattice_core.errors import LatticeError, ModelError, PluginError
from lattice_mlx.plugin import ARCHITECTURES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lattice_core.descriptors import ArchitectureSpec
    from lattice_mlx.network import Blueprint


@frozen
class Found:
    """An architecture for one configuration; ``title`` is the name that the configuration gives it."""

    title: str
    name: str
    spec: ArchitectureSpec

    def read(self, config: Mapping[str, Any]) -> Blueprint:
        """The blueprint. Raises ``ModelError`` for what the configuration asks and the architecture has not."""
        try:
            return cast("Blueprint", self.spec.resolve()(config))
        except LatticeError:
            raise
        except Exception as error:
            raise PluginError(f"architecture {self.name!r} could not read the configuration: {cause_of(error)}") from error


def find_architecture(
    config: Mapping[str, Any], registered: Mapping[str, ArchitectureSpec], chosen: str | None = None
) -> Found:
    """The architecture of a flat configuration: ``chosen`` by name, or the one that claims its class or model type.

    Raises ``ModelError`` that lists what there is, ``PluginError`` where two claim the same.
    """
    known = {spec.name: spec for spec in ARCHITECTURES} | dict(registered)
    listed = config.get("architectures")
    class_name = listed[0] if isinstance(listed, list | tuple) and listed else None
    asked = str(class_name or config.get("model_type"))
    if chosen is not None:
        if chosen not in known:
            raise ModelError(f"--mlx-architecture {chosen}: no such architecture; there are {', '.join(sorted(known))}")
        return Found(_title(class_name, known[chosen]), chosen, known[chosen])
    claims = {name: spec for name, spec in known.items() if class_name is not None and class_name in spec.classes}
    model_type = config.get("model_type")
    if class_name is None and model_type is not None:
        # Only then: another class of the same type, such as a classifier, is another model.
        claims = {name: spec for name, spec in known.items() if model_type in spec.model_types}
    if len(claims) > 1:
        names = sorted(claims)
        raise PluginError(f"{asked} is claimed by the architectures {' and '.join(names)}; say --mlx-architecture {names[0]}")
    if not claims:
        served = sorted({name for spec in known.values() for name in spec.classes})
        raise ModelError(f"architecture {asked!r} is not one that the mlx backend runs: {', '.join(served)}")
    name, spec = next(iter(claims.items()))
    return Found(_title(class_name, spec), name, spec)


def _title(class_name: Any, spec: ArchitectureSpec) -> str:
    """What the model says it is: the class that its configuration names, else the first that the architecture serves."""
    return str(class_name or next(iter(spec.classes), spec.name))
