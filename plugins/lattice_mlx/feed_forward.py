"""The gated feed-forward block: ``down(silu(gate(x)) * up(x))`` (Shazeer, 2020, arXiv:2002.05202)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping

    import mlx.core as mx

    from lattice_core.types import TensorSpec
    from lattice_mlx.kernels import Kernels
    from lattice_mlx.projection import Projection
    from lattice_mlx.step import Step
    from lattice_mlx.weights import WeightReader


@frozen
class FeedForwardShape:
    """One block as a configuration describes it; ``block`` is its name below the layer."""

    hidden: int
    inner: int
    bias: bool = False
    block: str = "mlp."

    def fit(self, specs: Mapping[str, TensorSpec], prefix: str) -> FeedForwardShape:
        """As the checkpoint stores it: there is one way only."""
        del specs, prefix
        return self

    def tensors(self, prefix: str) -> dict[str, tuple[int, ...]]:
        """Names and shapes below the layer ``prefix``."""
        names: dict[str, tuple[int, ...]] = {}
        shapes = {
            "gate_proj": (self.inner, self.hidden),
            "up_proj": (self.inner, self.hidden),
            "down_proj": (self.hidden, self.inner),
        }
        for name, shape in shapes.items():
            names[f"{prefix}{self.block}{name}.weight"] = shape
            if self.bias:
                names[f"{prefix}{self.block}{name}.bias"] = shape[:1]
        return names

    def build(self, weights: WeightReader, kernels: Kernels, prefix: str) -> FeedForward:
        """Read the block."""
        block = prefix + self.block
        gate_up = weights.projection(block, ("gate_proj", "up_proj"), bias=self.bias)
        down = weights.projection(block, ("down_proj",), bias=self.bias)
        return FeedForward(gate_up, down, self.inner, kernels)


class FeedForward:
    """``x [tokens, hidden] -> [tokens, hidden]``."""

    def __init__(self, gate_up: Projection, down: Projection, inner: int, kernels: Kernels) -> None:
        self._gate_up = gate_up
        self._down = down
        self._inner = inner
        self._kernels = kernels

    def __call__(self, x: mx.array, step: Step) -> mx.array:
        """Each token by itself."""
        gate_up = self._gate_up(x, step)
        return self._down(self._kernels.swiglu(gate_up[:, : self._inner], gate_up[:, self._inner :]), step)
