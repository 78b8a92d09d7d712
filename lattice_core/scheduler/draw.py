"""Random numbers of a row: a function of its seed and the position alone, so that a batch cannot change them."""

from __future__ import annotations

from hashlib import blake2b

_BITS = 24
"""As many bits as a float32 in [0, 1) holds exactly, so that a device that computes in float32 sees the same number."""


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) for the token at ``position`` (0 is the first sampled one)."""
    digest = blake2b(b"%d:%d" % (seed, position), digest_size=8).digest()
    return (int.from_bytes(digest, "little") >> (64 - _BITS)) / (1 << _BITS)
