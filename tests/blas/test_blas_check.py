import subprocess
import sys

import pytest

from lattice_mlx import blas_check

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere MLX's own BLAS is left in place")


def answer(library):
    done = subprocess.run(
        [sys.executable, "-I", "-S", blas_check.__file__, library], capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()[-1]


def test_a_good_library_is_described(openblas):
    line = answer(openblas)
    assert line.startswith(f'{blas_check.ANSWER}{{"prefix": "scipy_", "name": "OpenBLAS 0.3.')


def test_a_library_without_the_functions_is_refused():
    assert answer("libm.so.6") == f'{blas_check.ANSWER}{{"refused": "it has no cblas_sgemm"}}'


def test_a_library_with_some_of_the_functions_is_refused_with_a_missing_one():
    class Partial:
        cblas_sgemm = cblas_cgemm = None

    with pytest.raises(blas_check.RefusedError, match="it lacks cblas_dgemm"):
        blas_check.find_prefix(Partial())


def test_integers_of_64_bits_are_told_from_those_of_32(python, openblas):
    # numpy's own OpenBLAS has 64-bit integers; only the names differ from a library that would be taken for a good one.
    code = """
import ctypes, sys
from pathlib import Path
import numpy
from lattice_mlx.blas_check import check_product
wide = next((Path(numpy.__file__).parent.parent / "numpy.libs").glob("libscipy_openblas64_*"))
functions = ctypes.CDLL(sys.argv[1]).scipy_cblas_sgemm, ctypes.CDLL(str(wide)).scipy_cblas_sgemm64_
checks = (check_product({"cblas_sgemm": f}, "", high_bits=bits) for f in functions for bits in (0, -(1 << 32)))
print("\\n" + " ".join(map(str, checks)))
"""
    assert "True True True False" in python(code, openblas).splitlines()  # among what the library says of its arguments


def test_a_wrong_product_is_noticed():
    def idle(*_arguments):
        return None

    assert not blas_check.check_product({"cblas_sgemm": idle}, "", high_bits=0)
