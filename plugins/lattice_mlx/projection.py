"""Named linear modules as layers call them: several of one input fused into one product, plus what adapters add to a row.

Owns which module stands where in the output. Knows neither files nor how adapters are held.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

if TYPE_CHECKING:
    import mlx.core as mx

    from lattice_mlx.linear import Linear
    from lattice_mlx.step import Step


@frozen
class Module:
    """One module of a projection: its name below the decoder (``layers.0.self_attn.q_proj``), and its rows of the output."""

    name: str
    start: int
    width: int


@frozen(eq=False)
class Projection:
    """``x [tokens, width] -> [tokens, sum of the modules' widths]``."""

    linear: Linear
    modules: tuple[Module, ...]
    in_width: int

    @property
    def out_width(self) -> int:
        """Width of the output."""
        return sum(module.width for module in self.modules)

    def __call__(self, x: mx.array, step: Step) -> mx.array:
        """``x W^T + b``, and for rows with an adapter ``scale * x A^T B^T``."""
        y = self.linear(x)
        return y if step.adapters is None else step.adapters.add(self, x, y)
