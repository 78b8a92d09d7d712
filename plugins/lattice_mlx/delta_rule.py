"""The gated delta rule (Yang et al., 2024, arXiv:2412.06464), token by token and in chunks.

For each value head with state S [Dk, Dv], decay e^g, write strength beta and the key head that serves it:
``S = e^g S``, ``d = beta (v - S^T k)``, ``S = S + k d^T``, ``o = S^T q``.

The chunk form solves C tokens at once (Yang et al., 2024, arXiv:2406.06484). Token i reads key j of its chunk through
``e^(g_j+1 + ... + g_i)``, never more than 1; the writes d of a chunk solve a unit lower triangular system, whose inverse is
made by merging blocks, so that nothing loops over tokens. Everything is float32. Knows no layers and no caches.
"""

from __future__ import annotations

import mlx.core as mx

from lattice_mlx.activation import LARGE, exp

CHUNK, CHUNK_ON_CPU = 64, 16
"""Tokens solved at once in long sequences.

Large chunks keep a GPU busy. On the CPU small ones win (measured): products this small gain nothing from BLAS threads.
"""

_SMALLEST_CHUNK = 8
_STEPS = 3
"""Sequences up to this length go token by token, which is faster for them."""

_BOUND = 80.0


def normalized(x: mx.array, scale: float = 1.0) -> mx.array:
    """``scale * x / sqrt(sum(x^2) + 1e-6)`` along the last axis, in float32."""
    x = x.astype(mx.float32)
    return x * (mx.rsqrt(mx.sum(x * x, axis=-1, keepdims=True) + 1e-6) * scale)


def log_decay(a: mx.array, a_log: mx.array, dt_bias: mx.array) -> mx.array:
    """``-e^A_log * softplus(a + dt_bias)``: float32 [T, heads], at most 0; ``a`` [T, heads], the others [heads]."""
    x = a.astype(mx.float32) + dt_bias.astype(mx.float32)
    softplus = mx.maximum(x, 0.0) + mx.log1p(mx.exp(-mx.abs(x)))
    # Where e^A_log overflows and softplus underflows their product would be NaN; the bound is out of any model's reach.
    return -mx.exp(mx.minimum(a_log.astype(mx.float32), _BOUND)) * softplus


def delta_step(
    q: mx.array, k: mx.array, v: mx.array, decay: mx.array, beta: mx.array, state: mx.array
) -> tuple[mx.array, mx.array]:
    """One token for each of B rows.

    ``q``, ``k`` [B, Hk, Dk] (normalised, q scaled), ``v`` [B, Hv, Dv], ``decay`` [B, Hv] its logarithm, ``beta`` [B, Hv],
    ``state`` float32 [B, Hv, Dk, Dv]; key head j serves value heads j * Hv / Hk and on. Returns float32 [B, Hv, Dv], the state.
    """
    rows, key_heads, key_dim = k.shape
    heads, value_dim = v.shape[1:]
    q, k, v = (x.astype(mx.float32) for x in (q, k, v))
    shape = (rows, key_heads, heads // key_heads)
    kept = mx.exp(decay.astype(mx.float32)).reshape(*shape, 1, 1)
    old = state.reshape(*shape, key_dim, value_dim)
    # The state is read once for both products, and once more to be written.
    seen = mx.stack([k, q], axis=2)[:, :, None] @ old * kept
    delta = (v.reshape(*shape, value_dim) - seen[..., 0, :]) * beta.astype(mx.float32).reshape(*shape, 1)
    overlap = mx.sum(k * q, axis=-1)[:, :, None, None]
    new = old * kept + k[:, :, None, :, None] * delta[..., None, :]
    outputs = seen[..., 1, :] + overlap * delta
    return outputs.reshape(rows, heads, value_dim), new.reshape(state.shape)


def delta_rule(
    q: mx.array, k: mx.array, v: mx.array, decay: mx.array, beta: mx.array, state: mx.array, chunk: int = CHUNK
) -> tuple[mx.array, mx.array]:
    """T tokens of one sequence: shapes as in ``delta_step`` with T for B, ``state`` [Hv, Dk, Dv]; ``chunk`` as below."""
    tokens = q.shape[0]
    if tokens > _STEPS:
        return delta_chunks(q, k, v, decay, beta, state, chunk)
    outputs = []
    state = state[None]
    for token in range(tokens):
        at = slice(token, token + 1)
        output, state = delta_step(q[at], k[at], v[at], decay[at], beta[at], state)
        outputs.append(output)
    return outputs[0] if tokens == 1 else mx.concatenate(outputs), state[0]


def delta_chunks(
    q: mx.array, k: mx.array, v: mx.array, decay: mx.array, beta: mx.array, state: mx.array, chunk: int = CHUNK
) -> tuple[mx.array, mx.array]:
    """As ``delta_rule``, ``chunk`` tokens at once, a power of two."""
    tokens, key_heads, key_dim = q.shape
    heads, value_dim = v.shape[1:]
    while chunk // 2 >= max(tokens, _SMALLEST_CHUNK):
        chunk //= 2
    chunks = -(-tokens // chunk)
    group = heads // key_heads
    # [key heads, 1, chunks, C, D]: keys and queries once for each key head, however many value heads they serve. Both enter
    # several products, each of which would copy them again if they were not contiguous.
    q, k = (mx.contiguous(_chunked(x, chunks, chunk).transpose(2, 0, 1, 3))[:, None] for x in (q, k))
    # [key heads, group, chunks, C, ...]
    v = _chunked(v, chunks, chunk).reshape(chunks, chunk, key_heads, group, value_dim).transpose(2, 3, 0, 1, 4)
    g, b = (_chunked(x, chunks, chunk).reshape(chunks, chunk, key_heads, group).transpose(2, 3, 0, 1) for x in (decay, beta))
    between, since_start = _decays(g)
    until_end = between[..., -1, :, None]
    kt = k.swapaxes(-1, -2)
    reads = q @ kt * between
    inverse = _unit_lower_inverse(k @ kt * between * b[..., None])
    writes = inverse @ (v * b[..., None])
    corrections = (inverse * (b * since_start)[..., None, :]) @ k
    queries, pushed = q * since_start[..., None], (k * until_end).swapaxes(-1, -2)
    kept = since_start[..., -1, None, None]
    s = state.astype(mx.float32).reshape(key_heads, group, key_dim, value_dim)
    outputs = []
    for index in range(chunks):
        delta = writes[:, :, index] - corrections[:, :, index] @ s
        outputs.append(queries[:, :, index] @ s + reads[:, :, index] @ delta)
        s = s * kept[:, :, index] + pushed[:, :, index] @ delta
    whole = mx.concatenate(outputs, axis=2) if chunks > 1 else outputs[0]
    return whole.reshape(heads, chunks * chunk, value_dim).swapaxes(0, 1)[:tokens], s.reshape(state.shape)


def _chunked(x: mx.array, chunks: int, chunk: int) -> mx.array:
    """float32 [chunks, C, ...] of [T, ...], with zeros after the end: tokens without decay that write nothing."""
    x = x.astype(mx.float32)
    missing = chunks * chunk - x.shape[0]
    if missing:
        x = mx.concatenate([x, mx.zeros((missing, *x.shape[1:]), mx.float32)])
    return x.reshape(chunks, chunk, *x.shape[1:])


def _decays(g: mx.array) -> tuple[mx.array, mx.array]:
    """Of g [..., C] in chunks: what is left at token i of what token j wrote [..., C, C], and of the state before [..., C].

    Every span is summed by itself: as a difference of running sums, a weak decay beside a strong one would lose its digits.
    """
    later, earlier = mx.arange(g.shape[-1])[:, None], mx.arange(g.shape[-1])
    spans = mx.cumsum(mx.where(later > earlier, g[..., None], 0.0), axis=-2)
    return mx.where(later >= earlier, _decayed(spans), 0.0), _decayed(mx.cumsum(g, axis=-1))


def _decayed(x: mx.array) -> mx.array:
    """``e^x`` for x at most 0. In large arrays e^-80 stands for all below it: 2e-35, beside weights of 1 far below rounding."""
    return exp(mx.maximum(x, -_BOUND)) if x.size >= LARGE else mx.exp(x)


def _unit_lower_inverse(a: mx.array) -> mx.array:
    """The inverse of ``I + strictly lower part of a``, a [..., C, C] with C a power of two.

    Blocks on the diagonal double in size: the inverse of [[P, 0], [L, R]] is [[P', 0], [-R' L P', R']].
    """
    size, lead = a.shape[-1], a.shape[:-2]
    inverse = mx.ones((*lead, size, 1, 1), a.dtype)
    width = 1
    while width < size:
        count = size // (2 * width)
        blocks = a.reshape(*lead, count, 2, width, count, 2, width)[..., :, 1, :, :, 0, :]
        diagonal = mx.diagonal(blocks, axis1=-4, axis2=-2)
        below = mx.moveaxis(diagonal, -1, -3)
        pairs = inverse.reshape(*lead, count, 2, width, width)
        first, second = pairs[..., 0, :, :], pairs[..., 1, :, :]
        # The first blocks are ones: their products would be thousands of calls for a number each.
        corner = -below if width == 1 else -(second @ (below @ first))
        upper = mx.concatenate([first, mx.zeros_like(first)], axis=-1)
        inverse = mx.concatenate([upper, mx.concatenate([corner, second], axis=-1)], axis=-2)
        width *= 2
    return inverse.reshape(*lead, size, size)
