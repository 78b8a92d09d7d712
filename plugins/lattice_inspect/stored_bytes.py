"""How many bytes tensors take as stored, from their specifications alone. Knows no file and no model."""

from __future__ import annotations

from collections import Counter
from math import prod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lattice_core.types import TensorSpec

_BITS = {"BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "C64": 64}
"""Dtypes whose names do not say their size; the others end in it (``BF16``) or hold it before a ``_`` (``F8_E4M3``)."""
_WORD = 32


def kind_of(spec: TensorSpec) -> str:
    """How a tensor is stored, in words: ``BF16``, or ``4-bit, groups of 32, F16 scales``."""
    scheme = spec.quantization
    if scheme is None:
        return spec.dtype
    return f"{scheme.bits}-bit, groups of {scheme.group_size}, {scheme.scale_dtype} scales"


def bytes_of(spec: TensorSpec) -> int | None:
    """Bytes of one tensor, with the scales and biases of a packed one; None for a dtype of unknown size."""
    elements, scheme = prod(spec.shape), spec.quantization
    if scheme is None:
        bits = bits_of(spec.dtype)
        return None if bits is None else -(-elements * bits // 8)
    scale_bits = bits_of(scheme.scale_dtype)
    if scale_bits is None or not spec.shape:
        return None
    rows = elements // spec.shape[-1] if spec.shape[-1] else 0
    words = rows * -(-spec.shape[-1] * scheme.bits // _WORD)
    return words * _WORD // 8 + 2 * rows * (spec.shape[-1] // scheme.group_size) * scale_bits // 8


def bits_of(dtype: str) -> int | None:
    """Bits of one element of a dtype of the safetensors format."""
    if dtype in _BITS:
        return _BITS[dtype]
    digits = dtype.partition("_")[0].lstrip("BFIU")
    return int(digits) if digits.isdigit() else None


def summary_by_kind(specs: Iterable[TensorSpec]) -> list[dict[str, Any]]:
    """For each way of storing: its tensors, elements and bytes (None where unknown), most bytes first."""
    groups: dict[str, list[TensorSpec]] = {}
    for spec in specs:
        groups.setdefault(kind_of(spec), []).append(spec)
    rows = [
        {
            "kind": kind,
            "count": len(found),
            "elements": sum(prod(spec.shape) for spec in found),
            "bytes": _sum(bytes_of(spec) for spec in found),
        }
        for kind, found in groups.items()
    ]
    return sorted(rows, key=lambda row: (-(row["bytes"] or 0), row["kind"]))


def schemes_of(specs: Mapping[str, TensorSpec]) -> list[dict[str, Any]]:
    """The quantisation schemes with how many tensors use each, most used first."""
    counts = Counter(spec.quantization for spec in specs.values() if spec.quantization is not None)
    return [
        {"bits": scheme.bits, "group_size": scheme.group_size, "scale_dtype": scheme.scale_dtype, "count": count}
        for scheme, count in counts.most_common()
    ]


def _sum(sizes: Iterable[int | None]) -> int | None:
    total = 0
    for size in sizes:
        if size is None:
            return None
        total += size
    return total
