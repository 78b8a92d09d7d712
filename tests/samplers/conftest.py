"""Arrays of both libraries, and the oracle that says which tokens the batch form may choose."""

from __future__ import annotations

from itertools import product

import mlx.core as mx
import numpy as np
import pytest
from attrs import evolve

from lattice_samplers import plain_form

ROUNDING = 1e-5
"""What float32 sums may be off by, relative to their total."""


@pytest.fixture(params=["numpy", "mlx"])
def xp(request):
    """The namespace of the arrays that a backend would hand out."""
    if request.param == "numpy":
        return np
    mx.set_default_device(mx.cpu)
    return mx


@pytest.fixture
def tokens_near():
    """The plain form's tokens for draws and a top_p within float32 rounding; one token where no boundary is near."""

    def near(logits, settings, penalty, u):
        return {
            plain_form.choose(
                logits, evolve(settings, top_p=min(settings.top_p + dp, 1.0)), penalty, min(max(u + du, 0.0), 1 - 2**-53)
            )
            for dp, du in product((-ROUNDING, 0, ROUNDING), repeat=2)
        }

    return near
