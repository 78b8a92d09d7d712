"""Writes GGUF files for tests, from the format description: little-endian, version 3 unless told otherwise."""

import struct

KINDS = {
    "u8": 0,
    "i8": 1,
    "u16": 2,
    "i16": 3,
    "u32": 4,
    "i32": 5,
    "f32": 6,
    "bool": 7,
    "str": 8,
    "u64": 10,
    "i64": 11,
    "f64": 12,
}
CODES = {"u8": "B", "i8": "b", "u16": "H", "i16": "h", "u32": "I", "i32": "i", "f32": "f", "bool": "?", "u64": "Q", "i64": "q"}
CODES |= {"f64": "d"}
ARRAY = 9
TYPES = {"F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q5_0": 6, "Q5_1": 7, "Q8_0": 8, "Q2_K": 10, "Q3_K": 11, "Q4_K": 12}
TYPES |= {"Q5_K": 13, "Q6_K": 14, "IQ2_XXS": 16, "IQ4_NL": 20, "IQ4_XS": 23, "BF16": 30}


def text(value):
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(data)) + data


def body(kind, value):
    """The bytes of a value; a kind ``[KIND]`` is an array of it."""
    if kind.startswith("["):
        inner = kind[1:-1]
        number = ARRAY if inner.startswith("[") else KINDS[inner]
        return struct.pack("<IQ", number, len(value)) + b"".join(body(inner, item) for item in value)
    return text(value) if kind == "str" else struct.pack("<" + CODES[kind], value)


def pair(key, kind, value):
    number = ARRAY if kind.startswith("[") else KINDS[kind]
    return text(key) + struct.pack("<I", number) + body(kind, value)


def info(name, shape, kind, offset):
    """A row of the tensor table; ``shape`` is row-major, ``kind`` a name or a number."""
    dims = struct.pack(f"<I{len(shape)}Q", len(shape), *reversed(shape))
    return text(name) + dims + struct.pack("<IQ", TYPES.get(kind, kind), offset)


def aligned(data, alignment=32):
    return data + bytes(-len(data) % alignment)


def header(tensors, pairs, version=3, magic=b"GGUF"):
    return magic + struct.pack("<IQQ", version, tensors, pairs)


def document(metadata, tensors, *, alignment=32, version=3):
    """The bytes of a file. ``metadata``: key to (kind, value); ``tensors``: name to (type, row-major shape, bytes)."""
    head = header(len(tensors), len(metadata), version) + b"".join(pair(key, *value) for key, value in metadata.items())
    data = b""
    for name, (kind, shape, stored) in tensors.items():
        data = aligned(data, alignment)
        head += info(name, shape, kind, len(data))
        data += stored
    return aligned(head, alignment) + data
