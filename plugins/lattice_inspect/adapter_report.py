"""What an adapter holds: modules, ranks, scales, bytes. Reads no numbers of it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lattice_core.protocols import AdapterCheckpoint


def report_adapter(adapter: AdapterCheckpoint, *, tensors: bool) -> dict[str, Any]:
    """A mapping that JSON can hold; ``tensors`` lists each module. ``kinds`` are the last parts of the modules' names."""
    updates = adapter.updates()
    found: dict[str, Any] = {
        "format": adapter.format,
        "bytes": adapter.nbytes,
        "fingerprint": adapter.fingerprint,
        "modules": len(updates),
        "kinds": dict(sorted(Counter(name.rpartition(".")[2] for name in updates).items())),
        "ranks": sorted({update.rank for update in updates.values()}),
        "scales": sorted({update.scale for update in updates.values()}),
        "dtypes": sorted({part.spec.dtype for update in updates.values() for part in (update.a, update.b)}),
    }
    if tensors:
        found["each"] = [
            {
                "module": name,
                "rank": update.rank,
                "scale": update.scale,
                "in": update.a.spec.shape[1],
                "out": update.b.spec.shape[0],
            }
            for name, update in updates.items()
        ]
    return found
