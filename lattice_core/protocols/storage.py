"""Where models come from and how they are read: checkpoints, adapters, loaders, sources."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from lattice_core.types import LowRankUpdate, TensorData, TensorSpec


class Checkpoint(Protocol):
    """An opened model: configuration, text assets and tensors by name. Bytes are read on demand (memory-mapped)."""

    @property
    def config(self) -> Mapping[str, Any]:
        """The model's configuration in Hugging Face notation (``architectures``, ``hidden_size``, ...)."""
        ...

    @property
    def generation_config(self) -> Mapping[str, Any]:
        """``generation_config.json``, or what stands for it; empty when there is none."""
        ...

    @property
    def tokenizer_json(self) -> bytes:
        """The tokenizer in the JSON format of the ``tokenizers`` library."""
        ...

    @property
    def tokenizer_config(self) -> Mapping[str, Any]:
        """``tokenizer_config.json``, or what stands for it (``eos_token``, ``bos_token``); may be empty."""
        ...

    @property
    def chat_template(self) -> str | None:
        """The Jinja chat template, if the checkpoint has one."""
        ...

    @property
    def format(self) -> str:
        """A short name of the storage format for logs, such as ``gguf Q4_1``."""
        ...

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors as stored."""
        ...

    def tensors(self) -> Mapping[str, TensorSpec]:
        """All tensors by name (``model.layers.0.self_attn.q_proj.weight``)."""
        ...

    def read(self, name: str) -> TensorData:
        """The bytes of one tensor. Raises ``ModelError`` when the file does not hold them."""
        ...

    def close(self) -> None:
        """Give the files back. Views handed out before stay valid."""
        ...


class Loader(Protocol):
    """Opens a storage format."""

    def open(self, path: Path) -> Checkpoint:
        """Open the model at ``path``; raises ``ModelError`` with one line that names the file and the cause."""
        ...


class AdapterCheckpoint(Protocol):
    """An opened adapter: low-rank updates by the module that they change. Knows no model."""

    @property
    def format(self) -> str:
        """A short name of the storage format for logs, such as ``PEFT`` or ``MLX``."""
        ...

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors as stored."""
        ...

    @property
    def fingerprint(self) -> str:
        """A digest of everything that decides the adapter's effect; part of every cache key."""
        ...

    def updates(self) -> Mapping[str, LowRankUpdate]:
        """By module, named below the decoder in Hugging Face notation: ``layers.0.self_attn.q_proj``, ``lm_head``."""
        ...

    def close(self) -> None:
        """Give the files back. Views handed out before stay valid."""
        ...


@runtime_checkable
class AdapterLoader(Protocol):
    """A loader that also opens adapters."""

    def open_adapter(self, path: Path) -> AdapterCheckpoint:
        """Open the adapter at ``path``; raises ``ModelError`` with one line that names the file, the tensor and the cause."""
        ...


class ModelSource(Protocol):
    """Where ``lattice pull`` gets models from."""

    def pull(self, reference: str, cache: Path, include: Sequence[str], report: Callable[[str, int, int | None], None]) -> Path:
        """Bring ``reference`` into ``cache`` atomically and return its path; idempotent.

        ``report(what, done_bytes, total_bytes)`` is called as bytes arrive. Raises ``LatticeError``.
        """
        ...
