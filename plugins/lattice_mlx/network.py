"""What an architecture gives the model: the shape of its caches and two functions. Knows no states and no plans."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    import mlx.core as mx

    from lattice_core.types import TensorSpec
    from lattice_mlx.kv_cache import CacheGeometry
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
    def refused_adapters(self) -> Mapping[str, str]:
        """Parts of module names that no adapter may change, and why."""
        ...

    def fit(self, specs: Mapping[str, TensorSpec]) -> Blueprint:
        """The same with the layouts that the tensors of a checkpoint have; ``ModelError`` for a contradiction in them."""
        ...

    def tensors(self) -> Mapping[str, tuple[int, ...]]:
        """Canonical names (``tensor_names``) and logical shapes of all tensors that are needed."""
        ...

    def ignores(self, name: str) -> bool:
        """Whether a further tensor is known to be harmless."""
        ...

    def cache(self, dtype: mx.Dtype, context: int) -> CacheGeometry:
        """What a sequence keeps."""
        ...

    def build(self, weights: WeightReader, target: Target) -> Network:
        """Read all weights."""
        ...


class Network(Protocol):
    """A forward pass over packed tokens."""

    def hidden(self, step: Step) -> mx.array:
        """Run all layers: [tokens, hidden size] before the last norm, float32 or of the target's dtype.

        Writes the caches of the step's segments.
        """
        ...

    def logits(self, hidden: mx.array) -> mx.array:
        """Last norm and output projection: [rows, hidden size] -> float32 [rows, vocabulary]."""
        ...


class Architecture(Protocol):
    """Reads a flat configuration in Hugging Face notation; raises ``ModelError`` for what it cannot honour."""

    def __call__(self, config: Mapping[str, Any]) -> Blueprint:
        """The blueprint of one model."""
        ...
