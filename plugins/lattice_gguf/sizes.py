"""The sizes of a GGUF model, checked against one another, and what they make of the shapes and orders of ``rules``.

Owns the keys ``ARCHITECTURE.*`` that count things; source: ``docs/gguf.md``, ``src/llama-arch.cpp`` and
``src/models/qwen35*.cpp`` (ggml project). Must not know tensors' bytes, nor Hugging Face's names for the sizes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

from lattice_gguf.regrouping import Regrouping
from lattice_gguf.rules import Order

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from lattice_gguf.architectures import Architecture
    from lattice_gguf.metadata import Metadata

_FULL_ATTENTION_INTERVAL = 4


@frozen
class ExpertSizes:
    """A mixture of experts: how many, how many a token is sent to, and their inner widths; ``shared`` 0 is no shared expert."""

    experts: int
    chosen: int
    inner: int
    shared: int


@frozen
class DeltaNetSizes:
    """A Gated DeltaNet block. A key head serves ``value_heads / key_heads`` value heads."""

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    kernel: int

    @property
    def values(self) -> int:
        """Width of all value heads."""
        return self.value_heads * self.value_dim

    @property
    def queries_and_keys(self) -> int:
        """Width of all queries and keys."""
        return 2 * self.key_heads * self.key_dim


@frozen(kw_only=True)
class Sizes:
    """``recurrent_layers`` says for each layer whether it is a Gated DeltaNet one; ``inner`` 0 is no dense feed-forward.

    ``rotary`` counts the dimensions of a head that RoPE turns. ``prediction_head``: a decoder layer for multi-token prediction
    stands behind the others.
    """

    hidden: int
    inner: int
    heads: int
    kv_heads: int
    head_dim: int
    rotary: int
    vocabulary: int
    recurrent_layers: tuple[bool, ...]
    delta_net: DeltaNetSizes | None = None
    experts: ExpertSizes | None = None
    prediction_head: bool = False

    @property
    def layers(self) -> int:
        """Decoder layers."""
        return len(self.recurrent_layers)

    def shape(self, shape: tuple[str | int, ...]) -> tuple[int, ...]:
        """A rule's shape in numbers."""
        dimensions = self._dimensions()
        return tuple(size if isinstance(size, int) else dimensions[size] for size in shape)

    def regrouping(self, order: Order | None) -> Regrouping | None:
        """How to get from the file's order to that of Hugging Face notation; None where nothing moves."""
        if order is None:
            return None
        if order is Order.ROTARY_PAIRS:
            return Regrouping(self.head_dim // 2, 2)
        net = self.delta_net
        if net is None or net.key_heads in {1, net.value_heads}:
            return None
        unit = 1 if order is Order.VALUE_HEADS else net.value_dim
        start = net.queries_and_keys if order is Order.VALUE_ROWS_LAST else 0
        served = net.value_heads // net.key_heads
        return Regrouping(served, net.key_heads, unit, start, columns=order is Order.VALUE_COLUMNS)

    def _dimensions(self) -> Mapping[str, int]:
        queries = self.heads * self.head_dim
        found = {
            "vocabulary": self.vocabulary,
            "hidden": self.hidden,
            "twice_hidden": 2 * self.hidden,
            "inner": self.inner,
            "head_dim": self.head_dim,
            "queries": queries,
            "gated_queries": 2 * queries,
            "keys": self.kv_heads * self.head_dim,
        }
        if self.experts is not None:
            experts = self.experts
            found |= {"experts": experts.experts, "expert_inner": experts.inner, "expert_gate_up": 2 * experts.inner}
            found["shared_inner"] = experts.shared
        if self.delta_net is not None:
            net = self.delta_net
            found |= {"value_heads": net.value_heads, "value_dim": net.value_dim, "values": net.values}
            found |= {"channels": net.queries_and_keys + net.values, "kernel": net.kernel}
        return found


def read_sizes(metadata: Metadata, architecture: Architecture, vocabulary: int, names: Collection[str]) -> Sizes:
    """The sizes of a model. ``vocabulary`` counts the embeddings, ``names`` are the tensors of the file."""
    prefix = architecture.name
    if not architecture.experts and metadata.integer(f"{prefix}.expert_count", default=0) > 0:
        metadata.fail(f"mixture-of-experts models are not supported for the architecture {prefix!r}")
    hidden = metadata.integer(f"{prefix}.embedding_length")
    heads = metadata.integer(f"{prefix}.attention.head_count")
    kv_heads = metadata.integer(f"{prefix}.attention.head_count_kv", default=heads)
    blocks = metadata.integer(f"{prefix}.block_count")
    inner = 0 if architecture.experts else metadata.integer(f"{prefix}.feed_forward_length")
    if not (hidden and heads and kv_heads and blocks and (inner or architecture.experts)):
        metadata.fail(f"{prefix}: layers, heads and lengths must be positive")
    if blocks > len(names):
        metadata.fail(f"{blocks} layers cannot be made of {len(names)} tensors")
    if heads % kv_heads:
        metadata.fail(f"{heads} attention heads cannot be shared by {kv_heads} key-value heads")
    head_dim = _head_dim(metadata, prefix, hidden, heads)
    predicting = metadata.integer(f"{prefix}.nextn_predict_layers", default=0) if architecture.delta_net else 0
    if predicting >= blocks:
        metadata.fail(f"{predicting} of {blocks} layers are for multi-token prediction, which leaves none")
    # The converter counts a head that the configuration names even where the checkpoint was saved without one.
    has_head = predicting > 0 and any(name.startswith(f"blk.{blocks - predicting}.") for name in names)
    if has_head and predicting > 1:
        metadata.fail(f"{predicting} layers for multi-token prediction are not supported (one is)")
    return Sizes(
        hidden=hidden,
        inner=inner,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        rotary=_rotary(metadata, prefix, head_dim, partial=bool(architecture.delta_net)),
        vocabulary=vocabulary,
        recurrent_layers=_recurrent_layers(metadata, architecture, blocks, predicting),
        delta_net=_delta_net(metadata, prefix) if architecture.delta_net else None,
        experts=_experts(metadata, architecture) if architecture.experts else None,
        prediction_head=has_head,
    )


def _head_dim(metadata: Metadata, prefix: str, hidden: int, heads: int) -> int:
    if hidden % heads and f"{prefix}.attention.key_length" not in metadata:
        metadata.fail(f"an embedding of {hidden} cannot be divided among {heads} heads")
    head_dim = metadata.integer(f"{prefix}.attention.key_length", default=hidden // heads)
    if metadata.integer(f"{prefix}.attention.value_length", default=head_dim) != head_dim:
        metadata.fail(f"value heads of another size than key heads ({head_dim}) are not supported")
    return head_dim


def _rotary(metadata: Metadata, prefix: str, head_dim: int, *, partial: bool) -> int:
    """Sections of dimensions for time, height and width are not read: in text the three positions are equal."""
    rotary = metadata.integer(f"{prefix}.rope.dimension_count", default=head_dim)
    if head_dim % 2 or rotary % 2 or not 2 <= rotary <= head_dim or (rotary != head_dim and not partial):  # noqa: PLR2004 - a pair
        metadata.fail(f"RoPE over {rotary} of {head_dim} dimensions of a head is not supported")
    return rotary


def _recurrent_layers(metadata: Metadata, architecture: Architecture, blocks: int, predicting: int) -> tuple[bool, ...]:
    """As listed, or all but every ``full_attention_interval``-th. Blocks for prediction attend and are not counted."""
    prefix, layers = architecture.name, blocks - predicting
    if not architecture.delta_net:
        return (False,) * layers
    key = f"{prefix}.attention.recurrent_layers"
    if key in metadata:
        kinds = tuple(map(bool, metadata.numbers(key, blocks, "layers")))
    else:
        interval = metadata.integer(f"{prefix}.full_attention_interval", default=_FULL_ATTENTION_INTERVAL)
        if not interval:
            metadata.fail(f"{prefix}.full_attention_interval is 0, it must be positive")
        kinds = tuple(layer < layers and (layer + 1) % interval != 0 for layer in range(blocks))
    if any(kinds[layers:]):
        metadata.fail("a recurrent layer for multi-token prediction is not supported")
    # The layout of their convolution is what tells how norms are stored.
    if not any(kinds[:layers]):
        metadata.fail(f"{prefix}: none of {layers} layers is recurrent, which is not supported")
    return kinds[:layers]


def _delta_net(metadata: Metadata, prefix: str) -> DeltaNetSizes:
    key_heads = metadata.integer(f"{prefix}.ssm.group_count")
    value_heads = metadata.integer(f"{prefix}.ssm.time_step_rank")
    key_dim = metadata.integer(f"{prefix}.ssm.state_size")
    values = metadata.integer(f"{prefix}.ssm.inner_size")
    kernel = metadata.integer(f"{prefix}.ssm.conv_kernel")
    if not (key_heads and value_heads and key_dim and values and kernel):
        metadata.fail(f"{prefix}.ssm: heads, sizes and the kernel must be positive")
    if value_heads % key_heads:
        metadata.fail(f"{value_heads} value heads (ssm.time_step_rank) cannot be shared by {key_heads} key heads")
    if values % value_heads:
        metadata.fail(f"an inner size of {values} (ssm.inner_size) cannot be divided among {value_heads} value heads")
    # Not of llama.cpp: files of another converter say by it that they kept the order of Hugging Face notation.
    if not metadata.flag(f"{prefix}.ssm.v_head_reordered", default=True):
        metadata.fail(f"{prefix}.ssm.v_head_reordered is false: value heads in this order are not supported; convert again")
    return DeltaNetSizes(key_heads, value_heads, key_dim, values // value_heads, kernel)


def _experts(metadata: Metadata, architecture: Architecture) -> ExpertSizes:
    prefix = architecture.name
    has_shared = any("shared_inner" in rule.shape for rule in architecture.feed_forward)
    experts = metadata.integer(f"{prefix}.expert_count")
    chosen = metadata.integer(f"{prefix}.expert_used_count")
    inner = metadata.integer(f"{prefix}.expert_feed_forward_length")
    shared = metadata.integer(f"{prefix}.expert_shared_feed_forward_length") if has_shared else 0
    if not (experts and inner and (shared or not has_shared)):
        metadata.fail(f"{prefix}: experts and their lengths must be positive")
    if not 1 <= chosen <= experts:
        metadata.fail(f"{prefix}.expert_used_count is {chosen}, it must be from 1 to {experts}")
    return ExpertSizes(experts, chosen, inner, shared)
