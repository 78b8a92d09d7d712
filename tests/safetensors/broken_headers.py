"""Files whose header is none, or says what cannot be."""

from __future__ import annotations

import json
import os
import struct
from typing import TYPE_CHECKING

from tests.safetensors.damage import NORM, SINGLE, broken, copy, reheader
from tests.safetensors.safetensors_writer import entries, framed, parsed, tensors_of

if TYPE_CHECKING:
    from pathlib import Path


@broken
def build_header_length_bomb(directory: Path) -> str:
    copy(directory)
    path = directory / SINGLE
    path.write_bytes(struct.pack("<Q", 1 << 40) + path.read_bytes()[8:])
    return f"a header of {1 << 40} bytes, 1 to {4 << 20} are possible"


@broken
def build_header_nesting_bomb(directory: Path) -> str:
    copy(directory)
    (directory / SINGLE).write_bytes(framed(b'{"a":' + b"[" * 10_000 + b"]" * 10_000 + b"}"))
    return "the header is no valid JSON: it is nested more than 32 deep"


@broken
def build_header_not_json(directory: Path) -> str:
    copy(directory)
    (directory / SINGLE).write_bytes(framed(b"{this is no JSON}", bytes(100)))
    return "the header is no valid JSON"


@broken
def build_header_not_utf8(directory: Path) -> str:
    copy(directory)
    (directory / SINGLE).write_bytes(framed(b'{"\xff":1}'))
    return "the header is no valid JSON: it is not UTF-8"


@broken
def build_header_no_object(directory: Path) -> str:
    copy(directory)
    (directory / SINGLE).write_bytes(framed(b"[1, 2]"))
    return "the header is no JSON object"


@broken
def build_another_format(directory: Path) -> str:
    copy(directory)
    (directory / SINGLE).write_bytes(b"PK\x03\x04" + bytes(1000))
    return "is no safetensors file, or a damaged one"


@broken
def build_duplicate_tensor(directory: Path) -> str:
    copy(directory)
    header, data = parsed(directory / SINGLE)
    text = json.dumps(header)
    again = json.dumps({NORM: header[NORM]})[1:-1]
    (directory / SINGLE).write_bytes(framed(f"{text[:-1]}, {again}}}".encode(), data))
    return f'the key "{NORM}" stands twice'


@broken
def build_duplicate_field(directory: Path) -> str:
    copy(directory)
    header, data = parsed(directory / SINGLE)
    text = json.dumps(header).replace('"dtype": "BF16"', '"dtype": "F16", "dtype": "BF16"', 1)
    (directory / SINGLE).write_bytes(framed(text.encode(), data))
    return 'the key "dtype" stands twice'


@broken
def build_hole(directory: Path) -> str:
    copy(directory)
    found, data = entries(tensors_of(directory / SINGLE))
    names = list(found)
    cut = found[names[5]]["data_offsets"][0]
    for name in names[5:]:
        found[name]["data_offsets"] = [offset + 64 for offset in found[name]["data_offsets"]]
    (directory / SINGLE).write_bytes(framed(found, data[:cut] + bytes(64) + data[cut:]))
    return f"64 bytes between tensor '{names[4]}' and tensor '{names[5]}' belong to no tensor"


@broken
def build_leading_hole(directory: Path) -> str:
    copy(directory)
    found, data = entries(tensors_of(directory / SINGLE))
    for entry in found.values():
        entry["data_offsets"] = [offset + 8 for offset in entry["data_offsets"]]
    (directory / SINGLE).write_bytes(framed(found, bytes(8) + data))
    return "8 bytes between the header and tensor "


@broken
def build_overlap(directory: Path) -> str:
    copy(directory)
    reheader(directory, lambda header: header[NORM].update(data_offsets=[0, 192]))
    return "overlaps with tensor "


@broken
def build_trailing_bytes(directory: Path) -> str:
    copy(directory)
    with (directory / SINGLE).open("ab") as file:
        file.write(bytes(17))
    return "17 bytes follow the last tensor"


@broken
def build_offsets_past_end(directory: Path) -> str:
    copy(directory)
    reheader(directory, lambda header: header[NORM].update(data_offsets=[1 << 40, (1 << 40) + 192]))
    return "model.safetensors: is incomplete"


@broken
def build_offsets_reversed(directory: Path) -> str:
    copy(directory)
    reheader(directory, lambda header: header[NORM].update(data_offsets=[192, 0]))
    return f"tensor '{NORM}' begins at offset 192, after its end at 0"


@broken
def build_offsets_negative(directory: Path) -> str:
    copy(directory)
    reheader(directory, lambda header: header[NORM].update(data_offsets=[-192, 0]))
    return f"tensor '{NORM}' has the data_offsets '[-192, 0]', which are no begin and end"


@broken
def build_length_does_not_follow_from_shape(directory: Path) -> str:
    copy(directory)
    reheader(directory, lambda header: header[NORM].update(shape=[97]))
    return f"tensor '{NORM}' of BF16 [97] needs 194 bytes, its data_offsets span 192 bytes"


@broken
def build_shape_overflow(directory: Path) -> str:
    copy(directory)
    # The product is 2^64 + 96 elements, which 64-bit arithmetic takes for 96.
    reheader(directory, lambda header: header[NORM].update(shape=[(1 << 59) + 3, 32]))
    return f"tensor '{NORM}' of BF16 [576460752303423491, 32] needs"


@broken
def build_shape_negative(directory: Path) -> str:
    copy(directory)
    reheader(directory, lambda header: header[NORM].update(shape=[-96]))
    return f"tensor '{NORM}' has the impossible shape '[-96]'"


@broken
def build_unknown_dtype(directory: Path) -> str:
    copy(directory)
    reheader(directory, lambda header: header[NORM].update(dtype="F128"))
    return f"tensor '{NORM}' has the unknown dtype 'F128'"


@broken
def build_entry_without_shape(directory: Path) -> str:
    copy(directory)
    reheader(directory, lambda header: header[NORM].pop("shape"))
    return f"tensor '{NORM}' is not described by dtype, shape and data_offsets"


@broken
def build_named_pipe(directory: Path) -> str:
    copy(directory)
    (directory / SINGLE).unlink()
    os.mkfifo(directory / SINGLE)
    return "model.safetensors: is no regular file"


@broken
def build_directory_instead_of_file(directory: Path) -> str:
    copy(directory)
    (directory / SINGLE).unlink()
    (directory / SINGLE).mkdir()
    return "model.safetensors: is a directory, not a file"
