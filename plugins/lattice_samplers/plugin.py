"""Registers the samplers. Descriptors only: what they describe is imported when it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lattice_core import hookimpl
from lattice_core.descriptors import SamplerSpec

if TYPE_CHECKING:
    from collections.abc import Iterable


@hookimpl
def lattice_samplers() -> Iterable[SamplerSpec]:
    """The samplers ``default`` and ``greedy``."""
    yield SamplerSpec(
        name="default",
        summary="repetition penalty, temperature, top-k and top-p, then a draw",
        factory="lattice_samplers.default_sampler:DefaultSampler",
        requires=("numpy",),
    )
    yield SamplerSpec(
        name="greedy",
        summary="always the most likely token; takes no notice of temperature, top-k, top-p, penalty and seed",
        factory="lattice_samplers.greedy_sampler:GreedySampler",
        requires=("numpy",),
    )
