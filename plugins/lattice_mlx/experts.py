"""Products of tokens with the matrices of the experts they were sent to. Knows no routing.

Two ways of the same: gathered products, lazy and on any device; and, on the CPU, one product for each expert with its tokens
brought together, which reads every matrix once and goes through the fast BLAS. The latter looks at the routing on the host.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import mlx.core as mx
import numpy as np

from lattice_mlx.matrix import DenseMatrix

if TYPE_CHECKING:
    from lattice_mlx.kernels import Kernels
    from lattice_mlx.matrix import Matrix


class Experts(Protocol):
    """``x [tokens, hidden]`` and int32 ``chosen`` [tokens, k] -> [tokens, k, hidden]: each expert's answer."""

    def __call__(self, x: mx.array, chosen: mx.array) -> mx.array:
        """Gated feed-forward blocks of the chosen experts."""
        ...


class GatheredExperts:
    """By gathered products. ``gate_up`` is a stack [experts, 2 * inner, hidden], ``down`` [experts, hidden, inner]."""

    def __init__(self, gate_up: Matrix, down: Matrix, kernels: Kernels) -> None:
        self._gate_up = gate_up
        self._down = down
        self._kernels = kernels

    def __call__(self, x: mx.array, chosen: mx.array) -> mx.array:
        """As ``Experts``."""
        gate_up = _gathered(self._gate_up, x[:, None, None], chosen)[..., 0, :]
        inner = gate_up.shape[-1] // 2
        hidden = self._kernels.swiglu(gate_up[..., :inner], gate_up[..., inner:])
        return _gathered(self._down, hidden[:, :, None], chosen)[..., 0, :]


class GroupedExperts:
    """By one product for each expert that any token chose; dense matrices only."""

    def __init__(self, gate_up: DenseMatrix, down: DenseMatrix, kernels: Kernels) -> None:
        self._gate_up = gate_up.values
        self._down = down.values
        self._kernels = kernels

    def __call__(self, x: mx.array, chosen: mx.array) -> mx.array:
        """As ``Experts``."""
        experts = np.array(chosen)
        k = experts.shape[1]
        order = np.argsort(experts.reshape(-1), kind="stable")
        sent = x[mx.array(order // k)]
        answers, start = [], 0
        for expert, count in zip(*np.unique(experts, return_counts=True), strict=True):
            gate_up = sent[start : start + int(count)] @ self._gate_up[int(expert)].T
            inner = gate_up.shape[-1] // 2
            answers.append(self._kernels.swiglu(gate_up[:, :inner], gate_up[:, inner:]) @ self._down[int(expert)].T)
            start += int(count)
        back = np.argsort(order, kind="stable")
        return mx.concatenate(answers)[mx.array(back)].reshape(x.shape[0], k, -1)


def make_experts(gate_up: Matrix, down: Matrix, kernels: Kernels) -> Experts:
    """The way that suits the device and the weights."""
    if kernels.on_cpu and isinstance(gate_up, DenseMatrix) and isinstance(down, DenseMatrix):
        return GroupedExperts(gate_up, down, kernels)
    return GatheredExperts(gate_up, down, kernels)


def _gathered(matrix: Matrix, x: mx.array, chosen: mx.array) -> mx.array:
    """X [tokens, 1 or k, 1, in] times the transposed matrices ``chosen`` [tokens, k] -> [tokens, k, 1, out]."""
    if isinstance(matrix, DenseMatrix):
        return mx.gather_mm(x, matrix.values.swapaxes(-1, -2), rhs_indices=chosen)
    return mx.gather_qmm(
        x,
        matrix.words,
        matrix.scales,
        matrix.biases,
        rhs_indices=chosen,
        transpose=True,
        group_size=matrix.group_size,
        bits=matrix.bits,
    )
