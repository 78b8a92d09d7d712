"""Which implementation of rotation, attention and gating a target uses; fused kernels are compared with the plain forms first.

A GPU's fused kernels are not all of equal age on all of its kinds, so each is tried once at load, on the shapes that the
model will use, and replaced by the plain form where it disagrees. Knows no architecture.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

import mlx.core as mx
import numpy as np
from attrs import frozen

from lattice_mlx.activation import silu, silu_on_cpu, softmax_on_cpu, swiglu, swiglu_on_cpu
from lattice_mlx.attention import FusedAttention, PlainAttention, visible
from lattice_mlx.rope import FusedRoPE, PlainRoPE

if TYPE_CHECKING:
    from collections.abc import Callable

    from lattice_mlx.attention import Attention
    from lattice_mlx.rope import RoPE
    from lattice_mlx.target import Target

logger = logging.getLogger("lattice.mlx")

_CHUNK = 512
_TOLERANCE = {"float32": 1e-3, "float16": 2e-2, "bfloat16": 8e-2}


@frozen
class HeadGeometry:
    """Query heads, key and value heads, and their width."""

    heads: int
    kv_heads: int
    head_dim: int


@frozen(eq=False)
class Kernels:
    """The operations that differ between devices."""

    rope: RoPE
    attention: Attention
    swiglu: Callable[[mx.array, mx.array], mx.array]
    silu: Callable[[mx.array], mx.array]
    on_cpu: bool


def choose_kernels(target: Target, geometry: HeadGeometry, frequencies: np.ndarray) -> Kernels:
    """Plain operations on the CPU; on a GPU the fused kernels that agree with them."""
    if target.on_cpu:
        return Kernels(PlainRoPE(frequencies), PlainAttention(softmax_on_cpu), swiglu_on_cpu, silu_on_cpu, on_cpu=True)
    return Kernels(
        checked_rope(target, geometry, frequencies),
        checked_attention(target, geometry),
        mx.compile(swiglu),
        mx.compile(silu),
        on_cpu=False,
    )


def checked_rope(target: Target, geometry: HeadGeometry, frequencies: np.ndarray) -> RoPE:
    """The fused rotation, or the plain one where they differ on tokens at unlike positions.

    As many tokens as a chunk of a prompt: MLX 0.32.4 on CUDA cannot launch its kernel for many tokens of very narrow heads.
    """
    x = mx.random.normal((_CHUNK, geometry.heads + geometry.kv_heads, geometry.head_dim)).astype(target.dtype)
    positions = mx.arange(_CHUNK) * 3
    fused, plain = FusedRoPE(frequencies), PlainRoPE(frequencies)
    agree = _agree("rope", target, lambda: fused.at(positions)(x), lambda: plain.at(positions)(x))
    return fused if agree else plain


def checked_attention(target: Target, geometry: HeadGeometry) -> Attention:
    """The fused attention, or the plain one where they differ on rows of unlike length or on a causal chunk."""
    fused, plain = FusedAttention(), PlainAttention()
    kv = mx.random.normal((3, 2 * geometry.kv_heads, 40, geometry.head_dim)).astype(target.dtype)
    q = mx.random.normal((9, geometry.heads, geometry.head_dim)).astype(target.dtype)
    k, v = kv[:, : geometry.kv_heads, :36], kv[:, geometry.kv_heads :, :36]
    seen = visible(mx.array([35, 0, 17]), 36)
    ways = (fused, plain)
    decode = [partial(way.decode, q[:3], k, v, seen) for way in ways]
    causal = [partial(way.causal, q, k[0], v[0]) for way in ways]
    agree = _agree("decode attention", target, *decode) and _agree("causal attention", target, *causal)
    return fused if agree else plain


def _agree(what: str, target: Target, fused: Callable[[], mx.array], plain: Callable[[], mx.array]) -> bool:
    try:
        difference = np.array(mx.max(mx.abs(fused().astype(mx.float32) - plain().astype(mx.float32)))).item()
    except (RuntimeError, ValueError) as error:
        logger.warning("the fused %s of MLX fails here (%s); using plain operations", what, error)
        return False
    # Not "greater than": the comparison must fail for NaN as well.
    if difference <= _TOLERANCE[target.dtype_name]:
        return True
    logger.warning("the fused %s of MLX is off by %.3g here; using plain operations", what, difference)
    return False
