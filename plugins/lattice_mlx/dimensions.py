"""Bounds on what a configuration may ask for, and the fields that all architectures read the same way.

No model comes near the bounds, which are the reference implementation's: a file that asks for more is broken or hostile.
Checked before anything is allocated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lattice_core.errors import ModelError
from lattice_mlx.kernels import HeadGeometry

if TYPE_CHECKING:
    from lattice_mlx.config_fields import ConfigFields

MAX_LAYERS = 4096
MAX_HEADS = 8192
MAX_HEAD_DIM = 2048
MAX_WIDTH = 1 << 20
MAX_VOCABULARY = 4_000_000
MAX_CONTEXT = 1 << 24
MAX_EXPERTS = 4096
MAX_KERNEL = 512
MAX_RECURRENT_STATE = 1 << 24
"""Elements of one layer's recurrent state."""


def read_heads(fields: ConfigFields, hidden: int, default_head_dim: int | None = None) -> HeadGeometry:
    """Heads and their width; where ``head_dim`` is absent it is ``default_head_dim``, or the width shared among the heads."""
    heads = fields.integer("num_attention_heads", MAX_HEADS)
    kv_heads = fields.integer("num_key_value_heads", MAX_HEADS, default=heads)
    if heads % kv_heads:
        fields.refuse("num_key_value_heads", f"expected a divisor of num_attention_heads, {heads}")
    if default_head_dim is None:
        if not fields.has("head_dim") and hidden % heads:
            fields.refuse("hidden_size", f"expected a multiple of num_attention_heads, {heads}, where head_dim is absent")
        default_head_dim = hidden // heads or None
    head_dim = fields.integer("head_dim", MAX_HEAD_DIM, default=default_head_dim)
    if head_dim % 2:
        raise ModelError(f"config.head_dim is {head_dim}: rotary positions need an even number")
    if heads * head_dim > MAX_WIDTH:
        raise ModelError(f"config: {heads} heads of {head_dim} are wider than {MAX_WIDTH}")
    return HeadGeometry(heads, kv_heads, head_dim)


def refuse_sliding_window(fields: ConfigFields) -> None:
    """Refuse a model that attends to a window of the past only."""
    if fields.values.get("use_sliding_window"):
        fields.refuse("use_sliding_window", "attention to a sliding window is not supported")
    layers = fields.values.get("layer_types")
    if isinstance(layers, list | tuple) and any(kind != "full_attention" for kind in layers):
        fields.refuse("layer_types", "this architecture has full_attention layers only")
