import subprocess
import sys

import numpy as np
import pytest

from lattice_core.descriptors import Settings
from lattice_core.types import SamplingParams
from lattice_samplers import plugin


def test_the_plugin_registers_default_and_greedy():
    assert [spec.name for spec in plugin.lattice_samplers()] == ["default", "greedy"]


@pytest.mark.parametrize("spec", list(plugin.lattice_samplers()), ids=lambda spec: spec.name)
def test_every_factory_makes_a_sampler_that_samples(spec):
    sampler = spec.resolve()(Settings())
    state = sampler.new_state(SamplingParams(temperature=0.0), (0,), 3)
    assert sampler.sample(np.array([0.0, 1.0, 2.0], np.float32), state, 0.5) == 2


def test_registering_imports_no_numpy():
    code = "import sys; from lattice_samplers import plugin; list(plugin.lattice_samplers()); print('numpy' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False"
