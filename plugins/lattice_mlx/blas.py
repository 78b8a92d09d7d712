"""Puts a fast BLAS under MLX on Linux, before ``mlx.core`` is imported.

MLX's CPU wheel for Linux brings the reference BLAS, one unblocked thread. Its library looks ``cblas_sgemm`` and two more
names up in the order of the dynamic linker, global names first; so another library's functions, published under those
names before MLX is loaded, are the ones it calls. Owns the choice of that library. Must not import MLX.
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from attrs import frozen

from lattice_core.errors import UsageError
from lattice_mlx import blas_check
from lattice_mlx.elf import publish
from lattice_mlx.openblas_threads import limit_threads, short_waits

if TYPE_CHECKING:
    from collections.abc import Iterator

VARIABLE = "LATTICE_BLAS"
OFF = "off"
INSTALL = "pip install 'lattice-engine[cpu]'"

SYSTEM_LIBRARIES = ("libopenblas.so.0", "libopenblasp.so.0", "libblis.so.4", "libblis.so.3")
MKL_LIBRARIES = ("libmkl_rt.so.3", "libmkl_rt.so.2")
CUDA_DRIVER_FILES = ("/proc/driver/nvidia/version", "/dev/dxg")
CHECK_SECONDS = 30.0

logger = logging.getLogger("lattice.mlx")


@frozen
class BlasReport:
    """Which BLAS MLX calls for float32 on the CPU.

    ``line`` is for the log. ``path`` is the library's file or soname, None where MLX's own is left in place. ``fast`` says
    whether it is another than the reference BLAS of MLX's wheel.
    """

    line: str
    path: str | None
    name: str
    fast: bool


# The dynamic linker's global names belong to the process and are never taken back, so neither is the record of them.
_lock = Lock()
_published: list[BlasReport] = []


def load_fast_blas(choice: str | None = None) -> BlasReport:
    """Put a fast BLAS under MLX; call it before the first import of ``mlx.core``. Calling it again changes nothing.

    ``choice`` (without it the variable ``LATTICE_BLAS``) is ``off``, a path, or a name for the dynamic linker. Without
    either the first that serves of: OpenBLAS from the package ``scipy-openblas32``, MKL, the system's OpenBLAS or BLIS.
    Nothing is done on macOS, where MLX uses Accelerate, nor, without a choice, where MLX runs on CUDA. A library is first
    loaded and checked in another process. Raises ``UsageError`` if ``choice`` names a library that cannot be used.
    """
    if choice is None:
        choice = os.environ.get(VARIABLE)
    with _lock:
        if _published:
            return _published[0]
        reason = _no_need(choice)
        if reason is not None:
            return reason
        given = _locate(choice) if choice else None
        report = _found_in_process() or (_use_given(given) if given else _use_first())
        if report.fast:
            _published.append(report)
        return report


def _no_need(choice: str | None) -> BlasReport | None:
    """The report where no BLAS is to be put under MLX."""
    if sys.platform == "darwin":
        return BlasReport("BLAS: Accelerate, part of macOS", None, "Accelerate", fast=True)
    if sys.platform != "linux":
        return BlasReport(f"BLAS: MLX's own, it can be replaced on Linux only, not on {sys.platform}", None, "own", fast=False)
    if choice and choice.lower() == OFF:
        return BlasReport("BLAS: MLX's own, a fast one is switched off", None, OFF, fast=False)
    if not choice and _runs_on_cuda():
        return BlasReport("BLAS: MLX's own, the model runs on CUDA", None, "cuda", fast=False)
    return None


def _found_in_process() -> BlasReport | None:
    """The report where it is too late: another BLAS has the names already, or MLX has been loaded."""
    before = _address_in_process()
    if before is not None:
        path = _library_of(before)
        return BlasReport(f"BLAS: {path}, loaded before Lattice", path, Path(path).name, fast=True)
    if "mlx.core" in sys.modules:
        line = "BLAS: MLX's own and slow, too late for a fast one: mlx.core was imported before load_fast_blas() was called"
        return BlasReport(line, None, "too late", fast=False)
    return None


def _use_given(library: str) -> BlasReport:
    try:
        return _use(library)
    except OSError as error:
        message = f"BLAS library {library!r} cannot be used: {error}; give one with {', '.join(blas_check.SYMBOLS)}, or {OFF!r}"
        raise UsageError(message, param="mlx-blas") from error


def _use_first() -> BlasReport:
    refused = []
    for library in _candidates():
        try:
            return _use(library)
        except OSError as error:
            logger.debug("BLAS %s: %s", library, error)
            if "/" in library:
                refused.append(f" ({library}: {error})")
    line = (
        "BLAS: MLX's own, which makes prefill on the CPU tens of times slower than it could be; "
        f"get a fast one by {INSTALL}, or name one with {VARIABLE}=/path/to/libopenblas.so"
    )
    return BlasReport(line + "".join(refused), None, "reference", fast=False)


def _candidates() -> Iterator[str]:
    """Paths of installed packages, then names for the dynamic linker, best first."""
    spec = find_spec("scipy_openblas32")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        yield from sorted(str(path) for path in Path(folder, "lib").glob("libscipy_openblas*.so"))
    try:
        files = distribution("mkl").files or []
    except PackageNotFoundError:
        files = []
    yield from sorted(os.path.realpath(file.locate()) for file in files if file.name in MKL_LIBRARIES)
    yield from MKL_LIBRARIES
    yield from SYSTEM_LIBRARIES


def _locate(choice: str) -> str:
    path = Path(choice).expanduser()
    if path.is_file():
        return str(path.resolve())
    if "/" in choice:
        message = f"BLAS library {choice!r} does not exist; give the path of a shared library, or {OFF!r}"
        raise UsageError(message, param="mlx-blas")
    return choice


def _use(library: str) -> BlasReport:
    """Check ``library`` in another process, load it here and publish its functions; raises ``OSError``."""
    answer = _check(library)
    prefix = answer["prefix"]
    # Loaded without making its names global: of a whole BLAS and LAPACK, MLX shall see these three functions only.
    with short_waits():
        handle = ctypes.CDLL(library, mode=ctypes.RTLD_LOCAL)
    addresses = {name: _address(handle, prefix + name) for name in blas_check.SYMBOLS}
    publish(addresses, "liblattice-blas.so")
    if _address_in_process() != addresses["cblas_sgemm"]:
        raise OSError("the dynamic linker did not take its symbols, it must be that of glibc 2.28 or later")
    name = answer["name"] or Path(library).name
    threads = limit_threads(handle, prefix)
    details = f" ({threads})" if threads else ""
    return BlasReport(f"BLAS: {name}{details}, {library}", library, name, fast=True)


def _check(library: str) -> dict[str, str]:
    """The answer of ``blas_check`` run on ``library`` in a process of its own; raises ``OSError``."""
    command = [sys.executable, "-I", "-S", blas_check.__file__, library]
    try:
        done = subprocess.run(command, capture_output=True, timeout=CHECK_SECONDS, check=False, stdin=subprocess.DEVNULL)  # noqa: S603 - this interpreter and a file of ours
    except subprocess.TimeoutExpired as error:
        raise OSError(f"loading it and multiplying two small matrices took longer than {CHECK_SECONDS:.0f} s") from error
    lines = done.stdout.decode(errors="replace").splitlines()
    found = next((line.removeprefix(blas_check.ANSWER) for line in lines if line.startswith(blas_check.ANSWER)), None)
    if found is None or done.returncode != 0:
        raise OSError(f"a process that loaded and called it ended with status {done.returncode}")
    answer: dict[str, str] = json.loads(found)
    if "refused" in answer:
        raise OSError(answer["refused"])
    return answer


def _runs_on_cuda() -> bool:
    """Whether MLX's CUDA library is installed and a driver is loaded that it can use."""
    if not any(Path(path).exists() for path in CUDA_DRIVER_FILES):
        return False
    for package in ("mlx-cuda-13", "mlx-cuda-12"):
        try:
            distribution(package)
        except PackageNotFoundError:
            continue
        return True
    return False


def _address(library: ctypes.CDLL, name: str) -> int:
    address = ctypes.cast(library[name], ctypes.c_void_p).value
    if address is None:
        raise OSError(f"its {name} has no address")
    return address


def _address_in_process() -> int | None:
    """Where ``cblas_sgemm`` stands among the process's global names, if it does."""
    try:
        return _address(ctypes.CDLL(None), "cblas_sgemm")
    except AttributeError:
        return None


class _DlInfo(ctypes.Structure):
    """What ``dladdr`` fills in (dladdr(3))."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


def _library_of(address: int) -> str:
    """The file of the library that holds ``address``."""
    info = _DlInfo()
    found = ctypes.CDLL(None).dladdr(ctypes.c_void_p(address), ctypes.byref(info))
    return os.fsdecode(info.file) if found and info.file else "unknown library"
