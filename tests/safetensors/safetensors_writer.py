"""Writes safetensors files for tests, from the format's description, sound or not."""

import json
import struct

ITEMSIZE = {"F32": 4, "F16": 2, "BF16": 2, "U32": 4, "U8": 1, "I64": 8}


def entries(tensors):
    """The header's entries and the data for ``tensors``: name to (dtype, shape, bytes), laid one after the other."""
    found, data = {}, b""
    for name, (dtype, shape, stored) in tensors.items():
        found[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [len(data), len(data) + len(stored)]}
        data += stored
    return found, data


def framed(header, data=b""):
    """A file of this header, an object or text that stands as it is, and data."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def document(tensors, metadata=None):
    found, data = entries(tensors)
    return framed(({"__metadata__": metadata} if metadata is not None else {}) | found, data)


def parsed(path):
    """The header of a sound file, with its metadata, and the data section."""
    stored = path.read_bytes()
    (length,) = struct.unpack("<Q", stored[:8])
    return json.loads(stored[8 : 8 + length]), stored[8 + length :]


def tensors_of(path):
    """Name to (dtype, shape, bytes) of a sound file."""
    header, data = parsed(path)
    header.pop("__metadata__", None)
    return {
        name: (entry["dtype"], tuple(entry["shape"]), data[slice(*entry["data_offsets"])]) for name, entry in header.items()
    }


def zeros(dtype, *shape):
    """A tensor of zeros."""
    count = 1
    for size in shape:
        count *= size
    return dtype, shape, bytes(count * ITEMSIZE[dtype])


def split(directory, shards=2):
    """Cut ``model.safetensors`` of a directory into shards with an index; returns the names of the shards."""
    single = directory / "model.safetensors"
    tensors = list(tensors_of(single).items())
    single.unlink()
    weight_map, names = {}, []
    for number in range(shards):
        part = dict(tensors[number::shards])
        name = f"model-{number + 1:05}-of-{shards:05}.safetensors"
        (directory / name).write_bytes(document(part))
        weight_map |= dict.fromkeys(part, name)
        names.append(name)
    total = sum(len(stored) for _, (_, _, stored) in tensors)
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    return names
