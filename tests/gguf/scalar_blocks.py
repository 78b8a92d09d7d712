"""Slow dequantisers, one weight at a time in exact fractions, written from the block structures of the format.

They are what the fast ones are tested against, so they share nothing with them.
"""

import struct
from fractions import Fraction

IQ4 = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)


def half(block, at):
    return Fraction(struct.unpack_from("<e", block, at)[0])


def signed(byte):
    return byte - 256 if byte > 127 else byte


def nibble(block, at, index, half_size=16):
    byte = block[at + index % half_size]
    return byte & 15 if index < half_size else byte >> 4


def q4_0(b):
    return [half(b, 0) * (nibble(b, 2, i) - 8) for i in range(32)]


def q4_1(b):
    return [half(b, 0) * nibble(b, 4, i) + half(b, 2) for i in range(32)]


def fifth(block, at, index):
    return struct.unpack_from("<I", block, at)[0] >> index & 1


def q5_0(b):
    return [half(b, 0) * (nibble(b, 6, i) + 16 * fifth(b, 2, i) - 16) for i in range(32)]


def q5_1(b):
    return [half(b, 0) * (nibble(b, 8, i) + 16 * fifth(b, 4, i)) + half(b, 2) for i in range(32)]


def q8_0(b):
    return [half(b, 0) * signed(b[2 + i]) for i in range(32)]


def k_scale_and_minimum(packed, j):
    if j < 4:
        return packed[j] & 63, packed[j + 4] & 63
    scale = packed[j + 4] & 15 | packed[j - 4] >> 6 << 4
    minimum = packed[j + 4] >> 4 | packed[j] >> 6 << 4
    return scale, minimum


def q4_k(b):
    weights = []
    for i in range(256):
        scale, minimum = k_scale_and_minimum(b[4:16], i // 32)
        byte = b[16 + i // 64 * 32 + i % 32]
        q = byte >> 4 if i // 32 % 2 else byte & 15
        weights.append(half(b, 0) * scale * q - half(b, 2) * minimum)
    return weights


def q5_k(b):
    weights = []
    for i in range(256):
        scale, minimum = k_scale_and_minimum(b[4:16], i // 32)
        byte = b[48 + i // 64 * 32 + i % 32]
        q = byte >> 4 if i // 32 % 2 else byte & 15
        q += 16 * (b[16 + i % 32] >> i // 32 & 1)
        weights.append(half(b, 0) * scale * q - half(b, 2) * minimum)
    return weights


def two_bits(block, at, i):
    return block[at + i // 128 * 32 + i % 32] >> i % 128 // 32 * 2 & 3


def q2_k(b):
    return [half(b, 80) * (b[i // 16] & 15) * two_bits(b, 16, i) - half(b, 82) * (b[i // 16] >> 4) for i in range(256)]


def q3_k(b):
    weights = []
    for i in range(256):
        j = i // 16
        low = b[96 + j] & 15 if j < 8 else b[96 + j - 8] >> 4
        high = b[104 + j % 4] >> j // 4 * 2 & 3
        q = two_bits(b, 32, i) - (0 if b[i % 32] >> i // 32 & 1 else 4)
        weights.append(half(b, 108) * (low + 16 * high - 32) * q)
    return weights


def q6_k(b):
    weights = []
    for i in range(256):
        part, row, column = i // 128, i % 128 // 32, i % 32
        byte = b[part * 64 + row % 2 * 32 + column]
        low = byte >> 4 if row > 1 else byte & 15
        high = b[128 + part * 32 + column] >> row * 2 & 3
        weights.append(half(b, 208) * signed(b[192 + i // 16]) * (low + 16 * high - 32))
    return weights


def iq4_nl(b):
    return [half(b, 0) * IQ4[nibble(b, 2, i)] for i in range(32)]


def iq4_xs(b):
    weights = []
    for i in range(256):
        j = i // 32
        low = b[4 + j // 2] >> 4 * (j % 2) & 15
        high = struct.unpack_from("<H", b, 2)[0] >> 2 * j & 3
        weights.append(half(b, 0) * (low + 16 * high - 32) * IQ4[nibble(b, 8 + 16 * j, i % 32)])
    return weights


SCALAR = {
    "Q4_0": (q4_0, 18, (0,)),
    "Q4_1": (q4_1, 20, (0, 2)),
    "Q5_0": (q5_0, 22, (0,)),
    "Q5_1": (q5_1, 24, (0, 2)),
    "Q8_0": (q8_0, 34, (0,)),
    "Q2_K": (q2_k, 84, (80, 82)),
    "Q3_K": (q3_k, 110, (108,)),
    "Q4_K": (q4_k, 144, (0, 2)),
    "Q5_K": (q5_k, 176, (0, 2)),
    "Q6_K": (q6_k, 210, (208,)),
    "IQ4_NL": (iq4_nl, 18, (0,)),
    "IQ4_XS": (iq4_xs, 136, (0,)),
}
"""By type: the dequantiser of one block, the bytes of a block, and where its half-precision numbers stand."""


def random_blocks(kind, count, random):
    """``count`` blocks of random bits whose half-precision numbers are finite and of the size of real scales."""
    _, nbytes, halves = SCALAR[kind]
    blocks = []
    for _ in range(count):
        block = bytearray(random.bytes(nbytes))
        for at in halves:
            struct.pack_into("<e", block, at, random.normal(0, 0.02))
        blocks.append(bytes(block))
    return b"".join(blocks)


def weights(kind, stored):
    """The exact weights of stored blocks, in order."""
    decode, nbytes, _ = SCALAR[kind]
    return [weight for at in range(0, len(stored), nbytes) for weight in decode(stored[at : at + nbytes])]
