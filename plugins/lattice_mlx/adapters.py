"""Low-rank adapters beside the weights (LoRA, Hu et al., 2021, arXiv:2106.09685), chosen for each token of a batch.

Owns the resident adapters and their combinations. Every projection that an adapter changes has two matrices: A of all its
modules side by side [in, R], and B with each module's rows in its own columns of the output [R, out], the scale in it. The
adapters of one step stand side by side along R, and a mask keeps each token to its own: two products serve them all.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import count
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np
from attrs import frozen

from lattice_core.errors import ModelError
from lattice_core.types import AdapterId

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lattice_core.protocols import AdapterCheckpoint
    from lattice_core.types import LowRankUpdate, TensorData
    from lattice_mlx.projection import Module, Projection

_NAMED = 5
_COMBINATIONS = 4
_FLOATS: dict[str, np.dtype[Any]] = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "BF16": np.dtype("<u2")}


@frozen(eq=False)
class _Factors:
    """``down`` [in, R] and ``up`` [R, out]; ``owner`` is the place of each of R's columns in the step's list of adapters."""

    down: mx.array
    up: mx.array
    owner: mx.array | None = None


@frozen(eq=False)
class _Adapter:
    """One resident adapter: its factors by projection (``id``)."""

    factors: Mapping[int, _Factors]
    nbytes: int


@frozen(eq=False)
class StepAdapters:
    """What the adapters of one step add. ``places`` int32 [tokens, 1]: each token's adapter; None: all have the only one."""

    factors: Mapping[int, _Factors]
    places: mx.array | None

    def add(self, projection: Projection, x: mx.array, y: mx.array) -> mx.array:
        """``y`` with the rows' updates of ``projection``: x [tokens, in], y [tokens, out]."""
        factors = self.factors.get(id(projection))
        if factors is None:
            return y
        low = x @ factors.down
        if self.places is not None:
            # A choice, not a product with 0: what overflows for one row must not become NaN in another.
            low = mx.where(factors.owner == self.places, low, mx.zeros((), low.dtype))
        return y + low @ factors.up


class AdapterBank:
    """The resident adapters of one model. ``refused`` says of module names that cannot be adapted, why.

    ``rotated``: the weights were multiplied by a rotation (QuaRot, arXiv:2404.00456), for which adapters were not made.
    """

    def __init__(
        self, projections: Sequence[Projection], dtype: mx.Dtype, refused: Mapping[str, str], *, rotated: bool = False
    ) -> None:
        self._rotated = rotated
        self._modules = {module.name: (projection, module) for projection in projections for module in projection.modules}
        self._dtype = dtype
        self._refused = refused
        self._adapters: dict[AdapterId, _Adapter] = {}
        self._combined: OrderedDict[tuple[AdapterId, ...], Mapping[int, _Factors]] = OrderedDict()
        self._ids = count(1)

    def load(self, adapter: AdapterCheckpoint) -> AdapterId:
        """Make an adapter resident. Raises ``ModelError`` naming the module that does not fit, with nothing kept."""
        if self._rotated:
            raise ModelError(
                "this model's weights are rotated (QuaRot), and adapters are made for plain ones: use the plain model"
            )
        updates = adapter.updates()
        self._check(updates)
        grouped: dict[int, list[tuple[Module, LowRankUpdate]]] = {}
        for name, update in updates.items():
            projection, module = self._modules[name]
            grouped.setdefault(id(projection), []).append((module, update))
        projections = {id(projection): projection for projection, _ in self._modules.values()}
        factors = {key: self._factors(projections[key], parts) for key, parts in grouped.items()}
        arrays = [array for one in factors.values() for array in (one.down, one.up)]
        mx.eval(arrays)
        made = AdapterId(next(self._ids))
        self._adapters[made] = _Adapter(factors, sum(array.nbytes for array in arrays))
        return made

    def nbytes(self, adapter: AdapterId) -> int:
        """Bytes that a resident adapter takes; as much again while it shares a batch with others."""
        return self._adapters[adapter].nbytes

    def unload(self, adapter: AdapterId) -> None:
        """Free an adapter; ``KeyError`` for an unknown one."""
        del self._adapters[adapter]
        for combination in [key for key in self._combined if adapter in key]:
            del self._combined[combination]

    def clear(self) -> None:
        """Free all, and let go of the weights."""
        self._modules.clear()
        self._adapters.clear()
        self._combined.clear()

    def check(self, adapter: AdapterId | None) -> None:
        """Raise ``KeyError`` for an adapter that is not resident."""
        if adapter is not None and adapter not in self._adapters:
            raise KeyError(f"adapter {adapter} is not loaded")

    def for_tokens(self, adapters: Sequence[AdapterId | None]) -> StepAdapters | None:
        """What to add in a step whose tokens have these adapters; None where none has one."""
        chosen = tuple(sorted({adapter for adapter in adapters if adapter is not None}))
        if not chosen:
            return None
        if len(chosen) == 1 and None not in adapters:
            return StepAdapters(self._adapters[chosen[0]].factors, None)
        place = {adapter: index for index, adapter in enumerate(chosen)}
        places = mx.array([-1 if adapter is None else place[adapter] for adapter in adapters])[:, None]
        return StepAdapters(self._combination(chosen), places)

    # ------------------------------------------------------------------------------------ inside

    def _check(self, updates: Mapping[str, LowRankUpdate]) -> None:
        unknown = [name for name in updates if name not in self._modules]
        for name in unknown:
            for part, why in self._refused.items():
                if part in f".{name}.":
                    raise ModelError(f"the adapter changes {name}: {why}")
        if unknown:
            more = f" and {len(unknown) - _NAMED} more" if len(unknown) > _NAMED else ""
            raise ModelError(f"the adapter changes modules that this model does not have: {', '.join(unknown[:_NAMED])}{more}")
        for name, update in updates.items():
            projection, module = self._modules[name]
            for letter, data, expected in (
                ("A", update.a, (update.rank, projection.in_width)),
                ("B", update.b, (module.width, update.rank)),
            ):
                if tuple(data.spec.shape) != expected:
                    raise ModelError(
                        f"the adapter's {letter} of {name} ({data.spec.name}) is {list(data.spec.shape)},"
                        f" this model needs {list(expected)}"
                    )

    def _factors(self, projection: Projection, parts: Sequence[tuple[Module, LowRankUpdate]]) -> _Factors:
        total = sum(update.rank for _, update in parts)
        down = np.empty((projection.in_width, total), np.float32)
        up = np.zeros((total, projection.out_width), np.float32)
        start = 0
        for module, update in parts:
            stop = start + update.rank
            down[:, start:stop] = _numbers(update.a).T
            up[start:stop, module.start : module.start + module.width] = _numbers(update.b).T * np.float32(update.scale)
            start = stop
        return _Factors(mx.array(down).astype(self._dtype), mx.array(up).astype(self._dtype))

    def _combination(self, chosen: tuple[AdapterId, ...]) -> Mapping[int, _Factors]:
        """The factors of several adapters side by side; the last few combinations are kept."""
        if chosen in self._combined:
            self._combined.move_to_end(chosen)
            return self._combined[chosen]
        found: dict[int, list[tuple[int, _Factors]]] = {}
        for place, adapter in enumerate(chosen):
            for key, factors in self._adapters[adapter].factors.items():
                found.setdefault(key, []).append((place, factors))
        combined = {
            key: _Factors(
                mx.concatenate([factors.down for _, factors in parts], axis=1),
                mx.concatenate([factors.up for _, factors in parts]),
                mx.array([place for place, factors in parts for _ in range(factors.up.shape[0])]),
            )
            for key, parts in found.items()
        }
        mx.eval([array for one in combined.values() for array in (one.down, one.up, one.owner)])
        self._combined[chosen] = combined
        while len(self._combined) > _COMBINATIONS:
            self._combined.popitem(last=False)
        return combined


def _numbers(data: TensorData) -> np.ndarray:
    """float32 of a plain tensor."""
    stored: np.ndarray = np.frombuffer(data.data, _FLOATS[data.spec.dtype]).reshape(data.spec.shape)
    if data.spec.dtype == "BF16":
        return (stored.astype(np.uint32) << 16).view(np.float32)
    return stored.astype(np.float32)
