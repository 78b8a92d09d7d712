"""Reads the header of a safetensors file: which dtype most of its bytes have, and whether the file is as long as it says.

Format: the safetensors specification: header length u64 little-endian (at most 100 MB), JSON header, then the data.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

_MAX_HEADER_BYTES = 100_000_000
_LENGTH_BYTES = 8


def dominant_dtype(path: Path) -> str:
    """The dtype that most bytes of the file have (``BF16``). Raises ``ValueError`` in words where it is damaged."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
        if length > min(_MAX_HEADER_BYTES, size - _LENGTH_BYTES):
            raise ValueError(f"its header claims {length} bytes, the file has {size}")
        header: Any = json.loads(file.read(length))
    nbytes: Counter[str] = Counter()
    end = 0
    try:
        for name, tensor in header.items():
            if name != "__metadata__":
                start, stop = tensor["data_offsets"]
                nbytes[str(tensor["dtype"])] += stop - start
                end = max(end, stop)
    except (AttributeError, KeyError, TypeError, ValueError):
        msg = "its header is not that of a safetensors file"
        raise ValueError(msg) from None
    missing = end + length + _LENGTH_BYTES - size
    if missing > 0:
        raise ValueError(f"it lacks its last {missing} bytes")
    return nbytes.most_common(1)[0][0] if nbytes else ""
