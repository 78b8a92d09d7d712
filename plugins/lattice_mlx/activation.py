"""Softmax and gated SiLU. On the CPU large float32 arrays take an exponential made of vectorised operations.

MLX computes ``exp`` on x86 CPUs one element at a time (9 ns), and prefill would spend a third of its time in it. The one here
costs 2.5 ns an element, but about fifteen operations, so small arrays keep MLX's own.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import mlx.core as mx

if TYPE_CHECKING:
    from collections.abc import Callable

LARGE = 8192
"""Elements from which on the exponential made of many operations is the faster one (measured)."""

_BLOCK = 131072
"""Elements that ``in_blocks`` takes at a time: half a megabyte of float32."""

_LOG2E = math.log2(math.e)
_LN2 = math.log(2.0)
# Adding 1.5 * 2^23 to a float32 of small magnitude rounds it to a whole number that stands in the sum's low bits.
_ROUNDER = 12582912.0
_MANTISSA_BITS = 23
# Within these bounds neither the result nor its reciprocal leaves the normal range of float32.
_BOUND = 80.0


def exp(x: mx.array) -> mx.array:
    """``e^x`` of float32 for ``|x| <= 80``, any shape; relative error below 2e-6 for ``|x| <= 30``, 5e-6 beyond.

    ``x = n ln 2 + r`` with whole n; ``e^r = (R + r) / (R - r)`` with ``R = r coth(r / 2) = 2 + r^2/6 - r^4/360`` (its Taylor
    series, next term r^6/15120); n is added to the exponent bits of the quotient.
    """
    shifted = x * _LOG2E + _ROUNDER
    r = x - (shifted - _ROUNDER) * _LN2
    square = r * r
    even = square * (square * (-1 / 360) + 1 / 6) + 2.0
    quotient = (even + r) / (even - r)
    exponent = mx.left_shift(shifted.view(mx.int32), _MANTISSA_BITS)
    return (quotient.view(mx.int32) + exponent).view(mx.float32)


def in_blocks(function: Callable[..., mx.array], *arrays: mx.array) -> mx.array:
    """``function`` of arrays [rows, ...], some rows at a time: what it makes on the way then stays in the processor's cache.

    Measured on the CPU, a chain of fifteen operations over a large matrix takes a quarter of the time so.
    """
    rows = arrays[0].shape[0]
    block = max(1, _BLOCK * rows // arrays[0].size)
    if rows <= block:
        return function(*arrays)
    return mx.concatenate([function(*(array[start : start + block] for array in arrays)) for start in range(0, rows, block)])


def softmax(x: mx.array) -> mx.array:
    """Softmax along the last axis, with MLX's own operation; sums in float32."""
    return mx.softmax(x, axis=-1, precise=True)


def softmax_on_cpu(x: mx.array) -> mx.array:
    """As ``softmax``; what lies 80 below a row's maximum, masked places with it, counts as ``e^-80``, far below rounding."""
    if x.size < LARGE or x.dtype != mx.float32:
        return softmax(x)
    weights = exp(mx.maximum(x - mx.max(x, axis=-1, keepdims=True), -_BOUND))
    return weights / mx.sum(weights, axis=-1, keepdims=True)


def silu(x: mx.array) -> mx.array:
    """``x / (1 + e^-x)``."""
    return x * mx.sigmoid(x)


def silu_on_cpu(x: mx.array) -> mx.array:
    """As ``silu``; beyond 80 in magnitude with the sigmoid of 80, which float32 cannot tell from 0 or 1."""
    if x.size < LARGE or x.dtype != mx.float32:
        return silu(x)
    return in_blocks(lambda x: x / (exp(mx.clip(-x, -_BOUND, _BOUND)) + 1.0), x)


def swiglu(gate: mx.array, up: mx.array) -> mx.array:
    """``silu(gate) * up`` with ``silu(x) = x / (1 + e^-x)`` (Shazeer, 2020, arXiv:2002.05202)."""
    return gate * mx.sigmoid(gate) * up


def swiglu_on_cpu(gate: mx.array, up: mx.array) -> mx.array:
    """As ``swiglu``; a gate beyond 80 in magnitude has the sigmoid of 80, which float32 cannot tell from 0 or 1."""
    if gate.size < LARGE or gate.dtype != mx.float32:
        return swiglu(gate, up)
    return in_blocks(lambda gate, up: gate * up / (exp(mx.clip(-gate, -_BOUND, _BOUND)) + 1.0), gate, up)
