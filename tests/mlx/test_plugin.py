"""What the plugin registers, and what it must not import."""

import subprocess
import sys

from lattice_core.descriptors import resolve
from lattice_mlx import plugin
from lattice_mlx.backend import MlxBackend


def test_reading_the_descriptor_imports_neither_mlx_nor_numpy():
    code = (
        "import sys; from lattice_mlx import plugin; list(plugin.lattice_backends());"
        "print(sorted(name for name in sys.modules if name.split('.')[0] in ('mlx', 'numpy')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_backend_is_found_by_its_descriptor():
    [spec] = plugin.lattice_backends()
    assert spec.name == "mlx"
    assert resolve(spec.factory) is MlxBackend
    assert {option.name for option in spec.options} == {"device", "blas", "dequantize", "architecture"}
    assert next(option for option in spec.options if option.name == "blas").env_aliases == ("LATTICE_BLAS",)


def test_making_the_backend_loads_the_blas_before_mlx():
    code = (
        "import sys; from lattice_core.descriptors import Settings; from lattice_mlx.backend import MlxBackend;"
        "assert 'mlx.core' not in sys.modules;"
        "import lattice_mlx.backend as b; load = b.load_fast_blas;"
        "b.load_fast_blas = lambda choice: (print(choice, 'mlx.core' in sys.modules), load(choice))[1];"
        "MlxBackend(Settings(own={'blas': 'off'})); print('mlx.core' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "off False\nTrue\n"
