"""MLX's record of quantisation in a configuration: one scheme for all modules, and others for some by their paths.

``{"group_size": 64, "bits": 4, "mode": "affine", "model.layers.0.mlp.gate": {"group_size": 64, "bits": 8}, "lm_head": false}``
as mlx-lm writes it. Must not know tensors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import frozen

from lattice_core.errors import ModelError
from lattice_safetensors.header import shown

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

BITS = (2, 3, 4, 5, 6, 8)
_FIELDS = ("group_size", "bits", "mode")
# What a wrapper around the language model puts before a module's path; converters move these without moving the record.
_WRAPPERS = ("model", "language_model", "text_model")


@frozen
class Scheme:
    """How a module was packed. ``bits`` None: the tensors say; ``quantised`` False: not at all."""

    group_size: int
    bits: int | None = None
    quantised: bool = True


class QuantizationRecord:
    """The schemes of all modules. Raises ``ModelError`` for a mode other than affine, and for impossible numbers."""

    def __init__(self, found: Mapping[str, Any], path: Path) -> None:
        self._path = path
        self._default = self._scheme(found, "quantization", None)
        self._exact: dict[str, Scheme] = {}
        self._by_tail: dict[str, Scheme | None] = {}
        for module, entry in found.items():
            if module in _FIELDS or not isinstance(entry, dict | bool):
                continue
            scheme = self._entry(entry, f"quantization of {shown(module)}")
            self._exact[module] = scheme
            tail = _tail(module)
            # Two records for one module under different wrappers are no record, unless they agree.
            self._by_tail[tail] = scheme if self._by_tail.get(tail, scheme) == scheme else None

    def scheme(self, module: str) -> Scheme:
        """The scheme of a module: its own record, that of the same module under other wrappers, or the one for all.

        ``bits`` of the one for all are None: what the tensors say is right where a record was lost.
        """
        return self._exact.get(module) or self._by_tail.get(_tail(module)) or Scheme(self._default.group_size)

    def _entry(self, entry: Any, what: str) -> Scheme:
        if isinstance(entry, bool):
            return Scheme(self._default.group_size, quantised=entry)
        return self._scheme(entry, what, self._default.group_size)

    def _scheme(self, found: Mapping[str, Any], what: str, group_size: int | None) -> Scheme:
        mode = found.get("mode", "affine")
        if mode != "affine":
            raise ModelError(f"{self._path}: {what} has the mode {shown(str(mode))}; only affine is read")
        size, bits = found.get("group_size", group_size), found.get("bits")
        if size is None:
            raise ModelError(f"{self._path}: {what} says no group_size")
        if type(size) is not int or size < 1:
            raise ModelError(f"{self._path}: {what} has the group_size {shown(str(size))}, which is no positive number")
        if bits is not None and (type(bits) is not int or bits not in BITS):
            raise ModelError(f"{self._path}: {what} has {shown(str(bits))} bits; {', '.join(map(str, BITS))} are possible")
        return Scheme(size, bits)


def _tail(module: str) -> str:
    parts = module.split(".")
    while len(parts) > 1 and parts[0] in _WRAPPERS:
        del parts[0]
    return ".".join(parts)
