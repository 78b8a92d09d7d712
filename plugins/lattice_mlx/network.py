"""What an architecture gives the model: the shape of its caches and two functions. Knows no states and no plans."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    import mlx.core as mx

    from lattice_mlx.kernels import HeadGeometry
    from lattice_mlx.step import Step
    from lattice_mlx.target import Target
    from lattice_mlx.weights import WeightReader


class Blueprint(Protocol):
    """A checked configuration: what must be in the checkpoint, and how to build the network from it."""

    @property
    def vocab_size(self) -> int:
        """Width of the logits."""
        ...

    @property
    def context(self) -> int:
        """Tokens that the model was made for."""
        ...

    @property
    def layers(self) -> int:
        """Layers with a cache."""
        ...

    @property
    def geometry(self) -> HeadGeometry:
        """Heads of every layer."""
        ...

    def tensors(self) -> Mapping[str, tuple[int, ...]]:
        """Names and logical shapes of all tensors that are needed."""
        ...

    def ignores(self, name: str) -> bool:
        """Whether a further tensor is known to be harmless."""
        ...

    def build(self, weights: WeightReader, target: Target) -> Network:
        """Read all weights."""
        ...


class Network(Protocol):
    """A forward pass over packed tokens."""

    def hidden(self, step: Step) -> mx.array:
        """Run all layers: [tokens, hidden size] before the last norm. Writes the caches of the step's segments."""
        ...

    def logits(self, hidden: mx.array) -> mx.array:
        """Last norm and output projection: [rows, hidden size] -> float32 [rows, vocabulary]."""
        ...


class Architecture(Protocol):
    """Reads a configuration in Hugging Face notation; raises ``ModelError`` for what it cannot honour."""

    def __call__(self, config: Mapping[str, Any]) -> Blueprint:
        """The blueprint of one model."""
        ...
