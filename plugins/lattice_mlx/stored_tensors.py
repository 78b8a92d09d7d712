"""The accounting of a checkpoint's tensors before any is read: names, shapes, schemes, bytes. Knows neither MLX nor files."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np
from attrs import frozen

from lattice_core.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from lattice_core.protocols import Checkpoint
    from lattice_core.types import AffineQuantization, TensorSpec
    from lattice_mlx.network import Blueprint
    from lattice_mlx.tensor_names import LanguageTensors

_FLOATS = ("F32", "F16", "BF16")
GROUP_SIZES = (32, 64, 128)
BITS = (2, 3, 4, 5, 6, 8)
_NAMED = 5


@frozen
class Accounting:
    """What a checkpoint holds against what an architecture wants; ``wrong`` are lines about tensors of another shape."""

    missing: tuple[str, ...]
    surplus: tuple[str, ...]
    wrong: tuple[str, ...]


def account(
    specs: Mapping[str, TensorSpec], expected: Mapping[str, tuple[int, ...]], ignored: Callable[[str], bool]
) -> Accounting:
    """Compare by name and shape; ``ignored(name)`` says which further tensors are harmless."""
    return Accounting(
        tuple(name for name in expected if name not in specs),
        tuple(name for name in specs if name not in expected and not ignored(name)),
        tuple(
            f"{name} is {list(specs[name].shape)}, the config asks for {list(shape)}"
            for name, shape in expected.items()
            if name in specs and tuple(specs[name].shape) != shape
        ),
    )


def check_tensors(
    specs: Mapping[str, TensorSpec], expected: Mapping[str, tuple[int, ...]], ignored: Callable[[str], bool]
) -> None:
    """Refuse a checkpoint whose tensors do not fit an architecture, before anything is read.

    Raises ``ModelError`` that names the first few at fault.
    """
    found = account(specs, expected, ignored)
    if found.missing:
        raise ModelError(f"the checkpoint lacks {_listed(found.missing)}")
    if found.surplus:
        raise ModelError(f"the checkpoint holds {_listed(found.surplus)}, which the architecture of its config does not use")
    if found.wrong:
        shown = "; ".join(found.wrong[:_NAMED])
        raise ModelError(f"{len(found.wrong)} tensors have another shape than expected: {shown}")
    for name in expected:
        _check_storage(specs[name])


def unreadable(specs: Iterable[TensorSpec]) -> tuple[str, ...]:
    """One line for each tensor that is stored in a way that the backend does not read."""
    found = []
    for spec in specs:
        try:
            _check_storage(spec)
        except ModelError as error:
            found.append(error.message)
    return tuple(found)


def loaded_bytes(specs: Iterable[TensorSpec], itemsize: int, *, expand: bool) -> int:
    """Bytes that the tensors take with ``itemsize`` bytes for each element, packed ones packed unless they are expanded."""
    total = 0
    for spec in specs:
        elements, scheme = prod(spec.shape), spec.quantization
        if scheme is None or expand:
            total += elements * itemsize
        else:
            total += elements * scheme.bits // 8 + 2 * itemsize * (elements // scheme.group_size)
    return total


def check_tied(checkpoint: Checkpoint, tensors: LanguageTensors, blueprint: Blueprint) -> None:
    """Refuse a tied model whose file also holds an output projection of other numbers: one of the two would be ignored."""
    head, embedding = "lm_head.weight", "model.embed_tokens.weight"
    if head in blueprint.tensors() or head not in tensors.specs or embedding not in tensors.specs:
        return
    both = [checkpoint.read(tensors.stored[name]) for name in (head, embedding)]
    parts = [[part for part in (data.data, data.scales, data.biases) if part is not None] for data in both]
    same = len(parts[0]) == len(parts[1]) and all(_equal(*pair) for pair in zip(*parts, strict=True))
    if both[0].spec.shape != both[1].spec.shape or both[0].spec.dtype != both[1].spec.dtype or not same:
        raise ModelError(
            f"tie_word_embeddings is true, but the checkpoint holds {tensors.stored[head]} with other numbers than"
            f" {tensors.stored[embedding]}: correct config.json, or remove the tensor"
        )


def _equal(one: memoryview, other: memoryview) -> bool:
    """Whether two tensors have the same bytes."""
    return one.nbytes == other.nbytes and np.array_equal(np.frombuffer(one, np.uint8), np.frombuffer(other, np.uint8))


def _check_storage(spec: TensorSpec) -> None:
    scheme = spec.quantization
    if scheme is None:
        if spec.dtype not in _FLOATS:
            raise ModelError(f"tensor {spec.name} is {spec.dtype}; the mlx backend reads {', '.join(_FLOATS)}")
        return
    _check_scheme(spec, scheme)


def _check_scheme(spec: TensorSpec, scheme: AffineQuantization) -> None:
    name = spec.name
    if scheme.bits not in BITS or scheme.group_size not in GROUP_SIZES:
        raise ModelError(
            f"tensor {name} is quantised to {scheme.bits} bits in groups of {scheme.group_size}; the mlx backend reads"
            f" {', '.join(map(str, BITS))} bits in groups of {', '.join(map(str, GROUP_SIZES))}"
        )
    if scheme.scale_dtype not in _FLOATS:
        raise ModelError(f"tensor {name} has scales of {scheme.scale_dtype}; the mlx backend reads {', '.join(_FLOATS)}")
    if len(spec.shape) not in (2, 3) or spec.shape[-1] % scheme.group_size:
        raise ModelError(f"tensor {name} {list(spec.shape)} does not divide into groups of {scheme.group_size}")


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_NAMED])
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{len(names)} tensor{'s' if len(names) > 1 else ''}: {shown}{more}"
