import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere MLX's own BLAS is left in place")

PRODUCTS = """
import numpy as np
from lattice_mlx.blas import load_fast_blas
print(load_fast_blas().fast)
import mlx.core as mx
mx.set_default_device(mx.cpu)
draw = np.random.default_rng(7).standard_normal
for dtype in (np.float32, np.float64, np.complex64):
    for rows, inner, columns in ((1, 576, 1536), (3, 5, 7), (64, 576, 960), (130, 1536, 576)):
        x, w = draw((rows, inner)).astype(dtype), draw((inner, columns)).astype(dtype)
        with mx.stream(mx.cpu):
            for product, expected in (
                (mx.array(x) @ mx.array(w), x @ w),
                (mx.array(x) @ mx.array(np.ascontiguousarray(w.T)).T, x @ w),
                (mx.array(np.ascontiguousarray(x.T)).T @ mx.array(w), x @ w),
            ):
                error = np.abs(np.array(product) - expected).max() / np.abs(expected).max()
                assert error < 1e-4, (dtype, rows, inner, columns, error)
print("equal")
"""

RATE = """
import sys, time
from lattice_mlx.blas import load_fast_blas
load_fast_blas(sys.argv[1] or None)
import mlx.core as mx
mx.set_default_device(mx.cpu)
x, w = mx.random.normal((512, 576)), mx.random.normal((1536, 576))
mx.eval(x, w, x @ w.T)
times = []
for _ in range(5):
    start = time.perf_counter()
    mx.eval(x @ w.T)
    times.append(time.perf_counter() - start)
print(2 * 512 * 576 * 1536 / min(times) / 1e9)
"""

REPORT = """
import sys
from lattice_mlx.blas import load_fast_blas
report = load_fast_blas(*sys.argv[1:])
print(report.fast, report.path, report.name, report.line, sep="\\n")
"""

REFUSAL = """
import sys
from lattice_core.errors import UsageError
from lattice_mlx.blas import load_fast_blas
try:
    load_fast_blas(sys.argv[1])
except UsageError as error:
    print(error.param, error.message, sep="\\n")
"""


def test_products_equal_numpys_with_the_fast_blas_loaded(python):
    assert python(PRODUCTS).splitlines() == ["True", "equal"]


@pytest.mark.slow
def test_the_fast_blas_makes_a_large_product_at_least_five_times_faster(python):
    fast, own = (float(python(RATE, choice)) for choice in ("", "off"))
    print(f"{fast:.0f} GFLOP/s with the fast BLAS, {own:.1f} with MLX's own")
    assert fast > 5 * own


def test_the_package_of_the_extra_is_found_and_named(python, openblas):
    fast, path, name, line = python(REPORT).splitlines()
    assert (fast, path) == ("True", str(openblas))
    assert name.startswith("OpenBLAS 0.3.")
    assert line.startswith(f"BLAS: {name} (")
    assert line.endswith((f" kernels, 1 thread), {path}", f" threads), {path}"))


def test_off_leaves_mlx_its_own(python):
    for choice in ("off", "OFF"):
        assert python(REPORT, choice).splitlines() == ["False", "None", "off", "BLAS: MLX's own, a fast one is switched off"]


def test_the_variable_stands_for_the_choice_that_is_not_given(python, openblas):
    assert python(REPORT, LATTICE_BLAS="off").splitlines()[2] == "off"
    assert python(REPORT, LATTICE_BLAS=str(openblas)).splitlines()[1] == str(openblas)
    assert python(REPORT, "off", LATTICE_BLAS=str(openblas)).splitlines()[2] == "off"


def test_a_path_given_is_the_library_used(python, openblas, tmp_path):
    copy = tmp_path / "libmine.so"
    copy.symlink_to(openblas)
    assert python(REPORT, copy).splitlines()[:2] == ["True", str(openblas)]


def test_a_path_that_does_not_exist_is_an_error_that_names_it(python):
    param, message = python(REFUSAL, "/nowhere/libfast.so").splitlines()
    assert param == "mlx-blas"
    assert message == "BLAS library '/nowhere/libfast.so' does not exist; give the path of a shared library, or 'off'"


@pytest.mark.parametrize(
    ("library", "reason"),
    [
        ("libm.so.6", "it has no cblas_sgemm"),
        ("/etc/passwd", "invalid ELF header"),
        ("libnothing-of-this-name.so.9", "No such file or directory"),
    ],
)
def test_a_library_given_that_is_no_blas_is_an_error_that_says_why(python, library, reason):
    param, message = python(REFUSAL, library).splitlines()
    assert param == "mlx-blas"
    assert message.startswith(f"BLAS library {library!r} cannot be used: ")
    assert reason in message
    assert message.endswith("give one with cblas_sgemm, cblas_dgemm, cblas_cgemm, or 'off'")


def test_a_library_that_kills_its_process_when_loaded_is_an_error(python, truncated):
    _, message = python(REFUSAL, truncated).splitlines()
    assert "a process that loaded and called it ended with status -" in message


def test_an_mlx_that_is_imported_already_is_said_to_be_too_late(python):
    code = "import mlx.core\n" + REPORT
    fast, path, name, line = python(code).splitlines()
    assert (fast, path, name) == ("False", "None", "too late")
    assert "mlx.core was imported before" in line


def test_loading_again_changes_nothing(python):
    code = """
from lattice_mlx.blas import load_fast_blas
first = load_fast_blas()
import mlx.core
print(load_fast_blas() is first, load_fast_blas("off") is first, first.fast)
"""
    assert python(code) == "True True True"


def test_threads_that_load_at_once_get_the_same_report(python):
    code = """
from concurrent.futures import ThreadPoolExecutor
from lattice_mlx.blas import load_fast_blas
with ThreadPoolExecutor(4) as pool:
    reports = list(pool.map(lambda _: load_fast_blas(), range(8)))
print(len(set(map(id, reports))), reports[0].fast)
"""
    assert python(code) == "1 True"


def test_where_nothing_is_found_the_line_says_how_to_get_one(python):
    code = """
import sys
from lattice_mlx import blas
sys.modules["scipy_openblas32"] = None
blas.MKL_LIBRARIES = blas.SYSTEM_LIBRARIES = ()
report = blas.load_fast_blas()
print(report.fast, report.line)
"""
    answer = python(code)
    assert answer.startswith("False BLAS: MLX's own")
    assert "pip install 'lattice-engine[cpu]'" in answer
    assert "LATTICE_BLAS=/path/to/libopenblas.so" in answer


def test_a_broken_package_is_passed_over_and_named_where_nothing_else_serves(python, truncated, openblas, tmp_path):
    folder = tmp_path / "scipy_openblas32" / "lib"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").touch()
    broken = truncated.rename(folder / "libscipy_openblas.so")
    code = """
import sys
from lattice_mlx import blas
blas.MKL_LIBRARIES, blas.SYSTEM_LIBRARIES = (), tuple(sys.argv[1:])
report = blas.load_fast_blas()
print(report.path, report.line, sep="\\n")
"""
    assert python(code, openblas, path=[tmp_path]).splitlines()[0] == str(openblas)
    path, line = python(code, path=[tmp_path]).splitlines()
    assert path == "None"
    assert f"({broken}: a process that loaded and called it ended with status -" in line


def test_of_a_whole_blas_only_the_names_that_mlx_calls_become_visible(python):
    code = """
import ctypes
from lattice_mlx.blas import load_fast_blas
load_fast_blas()
names = ("cblas_sgemm", "cblas_dgemm", "cblas_cgemm", "cblas_saxpy", "scipy_cblas_sgemm", "scipy_cblas_saxpy")
print(*(hasattr(ctypes.CDLL(None), name) for name in names))
"""
    assert python(code) == "True True True False False False"


def test_a_blas_that_the_process_has_already_is_left_in_place_and_named(python, openblas):
    code = """
import ctypes, sys
from lattice_mlx.blas import load_fast_blas
from lattice_mlx.elf import publish
library = ctypes.CDLL(sys.argv[1])
publish({"cblas_sgemm": ctypes.cast(library.scipy_cblas_sgemm, ctypes.c_void_p).value}, "libother.so")
report = load_fast_blas()
print(report.fast, report.path, report.line, sep="\\n")
"""
    assert python(code, openblas).splitlines() == ["True", str(openblas), f"BLAS: {openblas}, loaded before Lattice"]


def test_where_mlx_runs_on_cuda_nothing_is_done_unless_a_library_is_given(python, openblas, tmp_path):
    installed = tmp_path / "mlx_cuda_13-0.32.4.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: mlx-cuda-13\nVersion: 0.32.4\n")
    code = """
import sys
from lattice_mlx import blas
blas.CUDA_DRIVER_FILES = (sys.argv[1],)
print(blas.load_fast_blas().name, blas.load_fast_blas(sys.argv[2]).fast)
"""
    assert python(code, installed, openblas, path=[tmp_path]) == "cuda True"
    assert python(code, "/no/driver", openblas, path=[tmp_path]).startswith("OpenBLAS")
    assert python(code, installed, openblas).startswith("OpenBLAS")
