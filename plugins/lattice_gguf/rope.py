"""RoPE of a GGUF model in Hugging Face notation.

Owns the keys ``*.rope.*`` of ``docs/gguf.md`` (ggml project) and the tensor ``rope_freqs.weight``: one factor for each pair
of dimensions, by which its frequency is divided. Hugging Face has no field for such a list, so it stands in the
configuration as ``rope_freqs``: ``frequency[i] = rope_theta ** (-2 * i / rotary) / rope_freqs[i]``, ``rotary`` being the
dimensions of a head that turn.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lattice_gguf.architectures import Architecture
    from lattice_gguf.metadata import Metadata
    from lattice_gguf.sizes import Sizes

_DEFAULT_THETA = 10000.0
_YARN = {"attn_factor": "attention_factor", "yarn_beta_fast": "beta_fast", "yarn_beta_slow": "beta_slow"}


def read_rope(metadata: Metadata, architecture: Architecture, sizes: Sizes) -> dict[str, Any]:
    """The fields ``rope_theta`` and ``rope_scaling``, and ``partial_rotary_factor`` where an architecture has it."""
    prefix = architecture.name
    theta = metadata.number(f"{prefix}.rope.freq_base", default=_DEFAULT_THETA)
    if theta <= 0:
        metadata.fail(f"{prefix}.rope.freq_base is {theta}, it must be positive")
    fields = {"rope_theta": theta, "rope_scaling": _scaling(metadata, f"{prefix}.rope")}
    return fields | ({"partial_rotary_factor": _part(sizes.rotary, sizes.head_dim)} if architecture.delta_net else {})


def _part(rotary: int, head_dim: int) -> float:
    """The factor whose product with ``head_dim``, cut to an integer, is ``rotary``: a quotient may be rounded below it."""
    factor = rotary / head_dim
    return factor if int(head_dim * factor) == rotary else math.nextafter(factor, 1.0)


def read_frequency_factors(factors: np.ndarray, rotary: int, metadata: Metadata) -> list[float]:
    """The field ``rope_freqs`` from the float32 tensor of that name; one positive factor for each pair of dimensions."""
    if factors.shape != (rotary // 2,) or not np.isfinite(factors).all() or (factors <= 0).any():
        metadata.fail(f"tensor 'rope_freqs.weight' must hold {rotary // 2} positive factors")
    values: list[float] = factors.tolist()
    return values


def _scaling(metadata: Metadata, prefix: str) -> Mapping[str, Any] | None:
    # Files from before `rope.scaling.*` say a linear factor by `rope.scale_linear`.
    legacy = metadata.number(f"{prefix}.scale_linear", default=1.0)
    kind = metadata.text(f"{prefix}.scaling.type", default="none" if legacy == 1.0 else "linear")
    factor = metadata.number(f"{prefix}.scaling.factor", default=legacy)
    if kind == "none" or (kind == "linear" and factor in {0.0, 1.0}):
        return None
    if factor <= 0:
        metadata.fail(f"{prefix}.scaling.factor is {factor}, it must be positive")
    if kind == "linear":
        return {"rope_type": "linear", "factor": factor}
    if kind == "yarn":
        original = metadata.integer(f"{prefix}.scaling.original_context_length")
        fields: dict[str, Any] = {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": original}
        keys = {f"{prefix}.scaling.{key}": field for key, field in _YARN.items()}
        return fields | {field: metadata.number(key) for key, field in keys.items() if key in metadata}
    return metadata.fail(f"{prefix}.scaling.type {kind!r} is not supported (supported: none, linear, yarn)")
