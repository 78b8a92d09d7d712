"""The tensor types of GGUF: number, name, elements and bytes of a block.

Source: ``enum ggml_type`` in ``docs/gguf.md`` and the block structures of ``ggml-common.h`` (ggml project). Must not know
how a block is decoded.
"""

from __future__ import annotations

from attrs import frozen


@frozen
class TensorType:
    """One storage type: a row is a sequence of blocks of ``elements`` weights in ``nbytes`` bytes."""

    name: str
    elements: int
    nbytes: int


TENSOR_TYPES: dict[int, TensorType] = {
    0: TensorType("F32", 1, 4),
    1: TensorType("F16", 1, 2),
    2: TensorType("Q4_0", 32, 18),
    3: TensorType("Q4_1", 32, 20),
    6: TensorType("Q5_0", 32, 22),
    7: TensorType("Q5_1", 32, 24),
    8: TensorType("Q8_0", 32, 34),
    10: TensorType("Q2_K", 256, 84),
    11: TensorType("Q3_K", 256, 110),
    12: TensorType("Q4_K", 256, 144),
    13: TensorType("Q5_K", 256, 176),
    14: TensorType("Q6_K", 256, 210),
    20: TensorType("IQ4_NL", 32, 18),
    23: TensorType("IQ4_XS", 256, 136),
    30: TensorType("BF16", 1, 2),
}
"""What this loader reads."""

UNREADABLE: dict[int, str] = {
    9: "Q8_1",
    15: "Q8_K",
    16: "IQ2_XXS",
    17: "IQ2_XS",
    18: "IQ3_XXS",
    19: "IQ1_S",
    21: "IQ3_S",
    22: "IQ2_S",
    24: "I8",
    25: "I16",
    26: "I32",
    27: "I64",
    28: "F64",
    29: "IQ1_M",
    34: "TQ1_0",
    35: "TQ2_0",
    39: "MXFP4",
    40: "NVFP4",
    41: "Q1_0",
}
"""Further types that the format knows, so that an error can name them."""

_FILE_TYPE_GUESSED = 1024
_FILE_TYPES: dict[int, str] = {
    0: "F32",
    1: "F16",
    2: "Q4_0",
    3: "Q4_1",
    7: "Q8_0",
    8: "Q5_0",
    9: "Q5_1",
    10: "Q2_K",
    11: "Q3_K_S",
    12: "Q3_K_M",
    13: "Q3_K_L",
    14: "Q4_K_S",
    15: "Q4_K_M",
    16: "Q5_K_S",
    17: "Q5_K_M",
    18: "Q6_K",
    21: "Q2_K_S",
    25: "IQ4_NL",
    30: "IQ4_XS",
    32: "BF16",
}


def file_type_name(number: int) -> str | None:
    """The name of a ``general.file_type``, such as ``Q4_K_M``; None where it is not known."""
    return _FILE_TYPES.get(number & ~_FILE_TYPE_GUESSED)
