"""Decodes what the codec writes and the loader hands out, one number at a time or by other means than theirs."""

import struct

import numpy as np


def decoded_file(data):
    """The shape and the float64 values of a ``.q4`` or ``.f16`` file."""
    magic, version, dimensions = struct.unpack_from("<4sII", data)
    *shape, count = struct.unpack_from(f"<{dimensions + 1}Q", data, 12)
    payload = data[20 + 8 * dimensions :]
    if magic == b"KHF1":
        assert version == 1
        return tuple(shape), np.array(struct.unpack(f"<{count}e", payload)).reshape(shape)
    assert (magic, version) == (b"KHQ4", 2)
    values = []
    for start in range(0, len(payload), 20):
        scale, bias = struct.unpack_from("<ee", payload, start)
        for byte in payload[start + 4 : start + 20]:
            values += [(byte % 16) * scale + bias, (byte // 16) * scale + bias]
    return tuple(shape), np.array(values[:count]).reshape(shape)


def decoded_tensor(tensor):
    """The float64 values of a ``TensorData``, packed ones by the definition of ``AffineQuantization``."""
    spec = tensor.spec
    if spec.quantization is None:
        kind = {"F32": "<f4", "F16": "<f2"}[spec.dtype]
        return np.frombuffer(tensor.data, kind).astype(np.float64).reshape(spec.shape)
    assert (spec.dtype, spec.quantization.bits, spec.quantization.group_size) == ("U32", 4, 32)
    words = np.frombuffer(tensor.data, "<u4").astype(np.uint64)
    codes = np.stack([words >> np.uint64(4 * place) & np.uint64(15) for place in range(8)], axis=1).reshape(-1, 32)
    scales, biases = (np.frombuffer(part, "<f2").astype(np.float64)[:, None] for part in (tensor.scales, tensor.biases))
    return (codes * scales + biases).reshape(spec.shape)
