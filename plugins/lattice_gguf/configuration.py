"""The configuration of a GGUF model in Hugging Face notation, and the sizes that its tensors must have.

Owns the keys ``ARCHITECTURE.*`` of ``docs/gguf.md`` (ggml project) but those of RoPE. Must not know tensors' bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import frozen

if TYPE_CHECKING:
    from collections.abc import Collection

    from lattice_gguf.architectures import Architecture, Rule
    from lattice_gguf.metadata import Metadata


@frozen
class Sizes:
    """What the shapes of ``Rule`` refer to."""

    layers: int
    hidden: int
    inner: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int

    @property
    def queries(self) -> int:
        """Rows of the query projection."""
        return self.heads * self.head_dim

    @property
    def keys(self) -> int:
        """Rows of the key and value projections."""
        return self.kv_heads * self.head_dim

    def shape(self, rule: Rule) -> tuple[int, ...]:
        """The shape that a rule asks for."""
        return tuple(getattr(self, name) for name in rule.shape)


def read_sizes(metadata: Metadata, prefix: str, vocabulary: int, tensors: int) -> Sizes:
    """The sizes of a dense decoder. ``prefix`` is the architecture's name in the keys.

    ``vocabulary`` counts the embeddings, ``tensors`` all tensors of the file: a layer has more than one.
    """
    if metadata.integer(f"{prefix}.expert_count", default=0):
        metadata.fail("mixture-of-experts models are not supported")
    hidden = metadata.integer(f"{prefix}.embedding_length")
    heads = metadata.integer(f"{prefix}.attention.head_count")
    kv_heads = metadata.integer(f"{prefix}.attention.head_count_kv", default=heads)
    layers = metadata.integer(f"{prefix}.block_count")
    inner = metadata.integer(f"{prefix}.feed_forward_length")
    if not (hidden and heads and kv_heads and layers and inner):
        metadata.fail(f"{prefix}: layers, heads and lengths must be positive")
    if layers > tensors:
        metadata.fail(f"{layers} layers cannot be made of {tensors} tensors")
    if heads % kv_heads:
        metadata.fail(f"{heads} attention heads cannot be shared by {kv_heads} key-value heads")
    if hidden % heads and f"{prefix}.attention.key_length" not in metadata:
        metadata.fail(f"an embedding of {hidden} cannot be divided among {heads} heads")
    head_dim = metadata.integer(f"{prefix}.attention.key_length", default=hidden // heads)
    if metadata.integer(f"{prefix}.attention.value_length", default=head_dim) != head_dim:
        metadata.fail(f"value heads of another size than key heads ({head_dim}) are not supported")
    rotary = metadata.integer(f"{prefix}.rope.dimension_count", default=head_dim)
    if rotary != head_dim or head_dim % 2:
        metadata.fail(f"RoPE over {rotary} of {head_dim} dimensions of a head is not supported")
    return Sizes(layers, hidden, inner, heads, kv_heads, head_dim, vocabulary)


def read_config(metadata: Metadata, architecture: Architecture, sizes: Sizes, names: Collection[str]) -> dict[str, Any]:
    """``config.json`` of the model; ``names`` are the tensors of the file. RoPE is added by ``rope.read_rope``."""
    prefix = architecture.name
    return {
        "architectures": [architecture.class_name],
        "model_type": architecture.model_type,
        "hidden_act": "silu",
        "hidden_size": sizes.hidden,
        "intermediate_size": sizes.inner,
        "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads,
        "num_key_value_heads": sizes.kv_heads,
        "head_dim": sizes.head_dim,
        "rms_norm_eps": metadata.number(f"{prefix}.attention.layer_norm_rms_epsilon"),
        "max_position_embeddings": metadata.integer(f"{prefix}.context_length"),
        "vocab_size": sizes.vocabulary,
        "tie_word_embeddings": "output.weight" not in names,
        "attention_bias": "blk.0.attn_q.bias" in names,
        "mlp_bias": "blk.0.ffn_gate.bias" in names,
    }
