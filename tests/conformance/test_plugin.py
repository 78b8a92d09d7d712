import os
import subprocess
import sys

import pytest

from lattice_conformance import plugin
from lattice_core.descriptors import Settings, resolve
from lattice_core.types import Limits

SPECS = [*plugin.lattice_backends(), *plugin.lattice_loaders(), *plugin.lattice_samplers(), *plugin.lattice_grammars()]


def test_everything_scripted_has_a_name_that_says_so():
    assert [spec.name for spec in SPECS if not spec.name.startswith("scripted")] == []


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_every_factory_works_with_the_defaults_of_its_options(spec):
    settings = Settings(own={option.name: option.default for option in spec.options})
    assert spec.resolve()(settings) is not None


def test_the_backend_takes_its_settings(tmp_path):
    [spec] = plugin.lattice_backends()
    fifo = tmp_path / "gate"
    os.mkfifo(fifo)
    settings = Settings(own={"context": 128, "gate": fifo, "fail": None, "load-delay": 0.0})
    opened = resolve(spec.checkpoint)(settings)
    model = spec.resolve()(settings).load(opened, Limits(), lambda done, total: None)
    assert model.info.context == opened.config["max_position_embeddings"] == 128


def test_registering_imports_no_numpy():
    code = (
        "import sys; from lattice_conformance import plugin as p;"
        "[*p.lattice_backends(), *p.lattice_loaders(), *p.lattice_samplers(), *p.lattice_grammars()];"
        "print('numpy' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False"
