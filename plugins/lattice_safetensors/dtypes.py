"""The dtypes of the safetensors format: bits per element. Source: the format's documentation and its list of dtypes.

F32, F16 and BF16 are what backends compute with, U32 holds words of packed weights; the others are counted and handed out as
bytes, since a checkpoint may hold buffers (I64 position ids) that no backend reads.
"""

from __future__ import annotations

BITS_OF = {
    "BOOL": 8,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "F8_E4M3": 8,
    "F8_E4M3FNUZ": 8,
    "F8_E5M2": 8,
    "F8_E5M2FNUZ": 8,
    "F8_E8M0": 8,
    "U8": 8,
    "I8": 8,
    "U16": 16,
    "I16": 16,
    "F16": 16,
    "BF16": 16,
    "U32": 32,
    "I32": 32,
    "F32": 32,
    "U64": 64,
    "I64": 64,
    "F64": 64,
    "C64": 64,
}

FLOATS = frozenset(("F32", "F16", "BF16"))
