"""What runs on a device: backends, models, logits. All of it is called on the device thread of its model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np

    from lattice_core.protocols.storage import AdapterCheckpoint, Checkpoint
    from lattice_core.types import AdapterId, Limits, ModelDescription, ModelInfo, RowInput, StateId

    Array = Any
    """An array of the backend's device that follows the subset of the array API that numpy and MLX share."""


class LogitsHandle(Protocol):
    """Logits of one forward pass, possibly not computed yet: one row for each wanted position, in the plan's order."""

    @property
    def array(self) -> Array:
        """Float32 array [rows, vocabulary] on the device."""
        ...


class Model(Protocol):
    """A loaded model. Owns arrays and batch slots; its callers see ids only. Called on one thread."""

    @property
    def info(self) -> ModelInfo:
        """What the model says of itself."""
        ...

    def new_state(self) -> StateId:
        """An empty state; costs nothing until tokens are fed."""
        ...

    def fork(self, states: Sequence[StateId]) -> list[StateId]:
        """Independent copies of states."""
        ...

    def release(self, states: Sequence[StateId]) -> None:
        """Free states. Releasing an unknown id is an error of the caller (``KeyError``)."""
        ...

    def rollback(self, states: Sequence[StateId], keep: Sequence[int]) -> bool:
        """Forget all but the first ``keep`` tokens of each state. False, with nothing done, where that is not exact."""
        ...

    def live_states(self) -> int:
        """How many states exist."""
        ...

    def forward(self, plan: Sequence[RowInput]) -> LogitsHandle:
        """One ragged step over rows of any length; lazy where the device is. A state may stand in a plan once."""
        ...

    def launch(self, arrays: Sequence[Array]) -> None:
        """Begin computing ``arrays`` (logits or sampled tokens) and the states behind them without waiting."""
        ...

    def wait(self, arrays: Sequence[Array]) -> None:
        """Wait until ``arrays`` and the states of the forward pass that made them are computed."""
        ...

    def read(self, tokens: Array) -> list[int]:
        """The sampled tokens as integers; waits for them."""
        ...

    def read_logits(self, logits: Array) -> np.ndarray:
        """Logits [rows, vocabulary] as float32 in host memory; waits for them."""
        ...

    def apply_mask(self, logits: Array, packed: np.ndarray) -> Array:
        """Logits with minus infinity where a bit is 0. ``packed``: uint32 [rows, ceil(vocabulary / 32)], bit 0 first."""
        ...

    def reset(self) -> None:
        """Drop all states and whatever a failed step left behind. The model must serve afterwards."""
        ...

    def close(self) -> None:
        """Free the weights."""
        ...


@runtime_checkable
class AdapterModel(Protocol):
    """A model that can hold adapters beside its weights; each row of a plan names the one that it uses.

    Adapters belong to no state: they outlive ``reset``.
    """

    def load_adapter(self, adapter: AdapterCheckpoint) -> AdapterId:
        """Make an adapter resident. Raises ``ModelError`` naming the tensor that does not fit, with nothing loaded."""
        ...

    def adapter_bytes(self, adapter: AdapterId) -> int:
        """Bytes that a resident adapter takes."""
        ...

    def unload_adapter(self, adapter: AdapterId) -> None:
        """Free an adapter. ``KeyError`` for an unknown one; no state may be fed with it afterwards."""
        ...


class Backend(Protocol):
    """Turns a checkpoint into a model on a device."""

    def load(self, checkpoint: Checkpoint, limits: Limits, progress: Callable[[int, int], None]) -> Model:
        """Load weights on the calling thread, which is the only one that will use the model.

        ``progress(done_bytes, total_bytes)`` is called as weights arrive. Raises ``ModelError``.
        """
        ...


@runtime_checkable
class DescribingBackend(Protocol):
    """A backend that can say what a checkpoint would be without loading it."""

    def describe(self, checkpoint: Checkpoint, limits: Limits) -> ModelDescription:
        """Sizes and the accounting of tensors. Raises ``ModelError`` for a configuration that it cannot run."""
        ...
