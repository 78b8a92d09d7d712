"""The mixture-of-experts block (Shazeer et al., 2017, arXiv:1701.06538): a router sends each token to a few experts.

The router's softmax over all experts is float32; the chosen probabilities are renormalised where the family does so; a shared
expert, behind a sigmoid gate, answers every token. Owns the tensors in every layout that checkpoints have, and the routing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlx.core as mx
from attrs import evolve, frozen

from lattice_mlx.experts import make_experts
from lattice_mlx.feed_forward import FeedForwardShape

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lattice_core.types import TensorSpec
    from lattice_mlx.experts import Experts
    from lattice_mlx.feed_forward import FeedForward
    from lattice_mlx.kernels import Kernels
    from lattice_mlx.projection import Projection
    from lattice_mlx.step import Step
    from lattice_mlx.weights import WeightReader

FUSED, STACKED, SINGLE = "experts.gate_up_proj", "switch_mlp", "experts.N"
"""Layouts: gate and up of all experts in one tensor, stacks of each projection (MLX), one tensor for each expert."""

REFUSED_ADAPTERS = {
    ".experts.": "adapters on experts are not supported",
    ".mlp.gate.": "adapters on routers are not supported",
    ".switch_mlp.": "adapters on experts are not supported",
}
"""Parts of module names that no adapter may change, and why."""


@frozen
class MixtureShape:
    """One block as a configuration describes it. ``shared`` is the inner width of the shared expert, 0 for none."""

    hidden: int
    experts: int
    chosen: int
    inner: int
    shared: int
    renormalise: bool
    layout: str = FUSED

    def fit(self, specs: Mapping[str, TensorSpec], prefix: str) -> MixtureShape:
        """With the layout that the checkpoint stores the experts in."""
        if f"{prefix}mlp.switch_mlp.gate_proj.weight" in specs:
            return evolve(self, layout=STACKED)
        if f"{prefix}mlp.experts.0.gate_proj.weight" in specs:
            return evolve(self, layout=SINGLE)
        return self

    def tensors(self, prefix: str) -> dict[str, tuple[int, ...]]:
        """Names and shapes below the layer ``prefix``."""
        block = f"{prefix}mlp."
        wide, narrow = (self.inner, self.hidden), (self.hidden, self.inner)
        names: dict[str, tuple[int, ...]] = {f"{block}gate.weight": (self.experts, self.hidden)}
        if self.layout == FUSED:
            names[f"{block}experts.gate_up_proj"] = (self.experts, 2 * self.inner, self.hidden)
            names[f"{block}experts.down_proj"] = (self.experts, *narrow)
        elif self.layout == STACKED:
            for name, shape in (("gate_proj", wide), ("up_proj", wide), ("down_proj", narrow)):
                names[f"{block}switch_mlp.{name}.weight"] = (self.experts, *shape)
        else:
            for expert in range(self.experts):
                for name, shape in (("gate_proj", wide), ("up_proj", wide), ("down_proj", narrow)):
                    names[f"{block}experts.{expert}.{name}.weight"] = shape
        if self.shared:
            names |= self._shared.tensors(prefix)
            names[f"{block}shared_expert_gate.weight"] = (1, self.hidden)
        return names

    def build(self, weights: WeightReader, kernels: Kernels, prefix: str) -> MixtureOfExperts:
        """Read the block."""
        block = f"{prefix}mlp."
        gate_up, down = self._stacks(block)
        experts = make_experts(weights.matrices(gate_up), weights.matrices(down), kernels)
        router = weights.router(f"{block}gate.weight")
        shared = self._shared.build(weights, kernels, prefix) if self.shared else None
        shared_gate = weights.projection(block, ("shared_expert_gate",)) if self.shared else None
        return MixtureOfExperts(self, router, experts, shared, shared_gate)

    @property
    def _shared(self) -> FeedForwardShape:
        return FeedForwardShape(self.hidden, self.shared, block="mlp.shared_expert.")

    def _stacks(self, block: str) -> tuple[list[list[str]], list[list[str]]]:
        """The tensors that make up gate and up, and down, as ``WeightReader.matrices`` takes them."""
        if self.layout == FUSED:
            return [[f"{block}experts.gate_up_proj"]], [[f"{block}experts.down_proj"]]
        if self.layout == STACKED:
            gate, up, down = ([f"{block}switch_mlp.{name}_proj.weight"] for name in ("gate", "up", "down"))
            return [gate, up], [down]
        gate, up, down = (
            [f"{block}experts.{expert}.{name}_proj.weight" for expert in range(self.experts)] for name in ("gate", "up", "down")
        )
        return [gate, up], [down]


class MixtureOfExperts:
    """``x [tokens, hidden] -> [tokens, hidden]``."""

    def __init__(
        self,
        shape: MixtureShape,
        router: mx.array,
        experts: Experts,
        shared: FeedForward | None,
        shared_gate: Projection | None,
    ) -> None:
        self._shape = shape
        self._router = router
        self._experts = experts
        self._shared = shared
        self._shared_gate = shared_gate

    def __call__(self, x: mx.array, step: Step) -> mx.array:
        """Each token by itself."""
        shares, chosen = route(x.astype(mx.float32) @ self._router, self._shape.chosen, renormalise=self._shape.renormalise)
        answers = self._experts(x, chosen).astype(mx.float32)
        mixed = mx.sum(answers * shares[..., None], axis=1)
        if self._shared is not None and self._shared_gate is not None:
            gate = mx.sigmoid(self._shared_gate(x, step).astype(mx.float32))
            mixed = mixed + gate * self._shared(x, step).astype(mx.float32)
        return mixed.astype(x.dtype)


def route(scores: mx.array, chosen: int, *, renormalise: bool) -> tuple[mx.array, mx.array]:
    """The experts of each token: shares float32 and indices int32, both [tokens, chosen], from scores [tokens, experts].

    Of equal probabilities the lower index is the likelier choice, on every device: probability bits and index make one key.
    """
    probabilities = mx.softmax(scores.astype(mx.float32), axis=-1, precise=True)
    experts = scores.shape[-1]
    order = mx.arange(experts - 1, -1, -1, dtype=mx.int64)
    keys = (probabilities.view(mx.int32).astype(mx.int64) << 32) | order
    best = mx.sort(keys, axis=-1)[:, -chosen:][:, ::-1]
    indices = (experts - 1 - (best & 0xFFFFFFFF)).astype(mx.int32)
    shares = mx.take_along_axis(probabilities, indices, axis=-1)
    if renormalise:
        shares = shares / mx.sum(shares, axis=-1, keepdims=True)
    return shares, indices
