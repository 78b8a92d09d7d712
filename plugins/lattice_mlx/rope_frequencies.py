"""Angular frequencies of rotary position embeddings from a configuration. Pure numbers, no arrays of a device.

Reads ``rope_parameters`` (transformers 5), ``rope_theta`` and ``rope_scaling`` (4.x), and ``rope_freqs``, the list of factors
that GGUF files carry: each pair's frequency is divided by its factor.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from lattice_mlx.config_fields import ConfigFields

TYPES = ("default", "linear", "llama3")
_DEFAULT_THETA = 10000.0
_MAX_CONTEXT = 1 << 30


def rope_frequencies(config: ConfigFields, head_dim: int, partial: float | None = None) -> np.ndarray:
    """Radians per position for each pair of dimensions that turns, float32 [head_dim / 2] or fewer.

    ``partial`` is the default of ``partial_rotary_factor``, the part of a head that turns; None for architectures that turn
    whole heads, which refuse any other factor.

    ``theta ** (-2 i / head_dim)`` (Su et al., 2021, arXiv:2104.09864), scaled as ``rope_type`` says: ``linear`` divides all by
    ``factor``; ``llama3`` divides those of long wavelength and blends between two bounds (transformers,
    ``modeling_rope_utils``). Raises ``ModelError`` for anything else.
    """
    modern = config.section("rope_parameters")
    scaling = modern if modern.values else config.section("rope_scaling")
    theta = modern.number("rope_theta") if modern.has("rope_theta") else config.number("rope_theta", _DEFAULT_THETA)
    head_dim = _rotary_dimensions(config, scaling, head_dim, partial)
    frequencies = theta ** (-np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)
    kind_field = "rope_type" if scaling.has("rope_type") or not scaling.has("type") else "type"
    kind = scaling.choice(kind_field, TYPES, "default")
    if kind == "linear":
        frequencies = frequencies / scaling.number("factor")
    elif kind == "llama3":
        frequencies = _llama3(frequencies, scaling)
    divided: np.ndarray = frequencies / _factors(config, head_dim)
    return divided.astype(np.float32)


def _rotary_dimensions(config: ConfigFields, scaling: ConfigFields, head_dim: int, partial: float | None) -> int:
    """How many dimensions of a head turn: an even number from 2."""
    factor, where = partial or 1.0, config
    for fields in (config, scaling):
        if fields.has("partial_rotary_factor"):
            factor, where = fields.number("partial_rotary_factor"), fields
    if partial is None and factor != 1.0:
        where.refuse("partial_rotary_factor", "this architecture rotates whole heads (1.0)")
    dimensions = int(head_dim * factor)
    if not 2 <= dimensions <= head_dim or dimensions % 2:  # noqa: PLR2004  a pair has two
        where.refuse(
            "partial_rotary_factor", f"{dimensions} of {head_dim} dimensions would turn: expected an even number from 2"
        )
    return dimensions


def _llama3(frequencies: np.ndarray, scaling: ConfigFields) -> np.ndarray:
    factor = scaling.number("factor")
    low, high = scaling.number("low_freq_factor"), scaling.number("high_freq_factor")
    if high <= low:
        scaling.refuse("high_freq_factor", f"expected more than low_freq_factor, {low}")
    context = scaling.integer("original_max_position_embeddings", _MAX_CONTEXT)
    turns = context * frequencies / (2 * math.pi)
    # 0 where a pair turns fewer than `low` times in the original context, 1 where more than `high` times.
    kept = np.clip((turns - low) / (high - low), 0.0, 1.0)
    scaled: np.ndarray = frequencies * (kept + (1.0 - kept) / factor)
    return scaled


def _factors(config: ConfigFields, head_dim: int) -> np.ndarray:
    listed = config.values.get("rope_freqs")
    if listed is None:
        return np.ones(head_dim // 2)
    expected = f"expected a list of {head_dim // 2} finite numbers above 0"
    try:
        factors = np.asarray(listed, dtype=np.float64)
    except (TypeError, ValueError):
        config.refuse("rope_freqs", expected)
    if factors.shape != (head_dim // 2,) or not np.isfinite(factors).all() or (factors <= 0).any():
        config.refuse("rope_freqs", expected)
    return factors
