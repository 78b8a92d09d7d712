import os
import sys

import pytest

from lattice_mlx.cpu_quota import cpu_quota

LIMITED = """
from lattice_mlx import blas, openblas_threads
openblas_threads.cpu_quota = lambda: 1
print(blas.load_fast_blas().line)
"""

WAITS = """
import ctypes, os, sys
from lattice_mlx import openblas_threads
openblas_threads.FEW_PROCESSORS = int(sys.argv[1])
with openblas_threads.short_waits():
    print(os.environ.get("OPENBLAS_THREAD_TIMEOUT"))
print(os.environ.get("OPENBLAS_THREAD_TIMEOUT"))
"""


@pytest.fixture
def group(tmp_path):
    """A tree of control groups in which this process stands in ``a/b``; writes ``cpu.max`` files, reads the quota."""
    root, membership = tmp_path / "cgroup", tmp_path / "membership"
    (root / "a" / "b").mkdir(parents=True)
    membership.write_text("9:cpuset:/other\n0::/a/b\n")

    def quota(**limits):
        for folder, limit in limits.items():
            (root / folder.replace("_", "/") / "cpu.max").write_text(limit)
        return cpu_quota(root, membership)

    return quota


def test_without_a_limit_there_is_no_quota(group):
    assert group() is None
    assert group(a="max 100000\n", a_b="max 100000\n") is None


def test_the_smallest_quota_up_to_the_root_counts_rounded_up(group):
    assert group(a_b="400000 100000\n") == 4
    assert group(a="150000 100000\n") == 2
    assert group(a="10000 100000\n") == 1


def test_a_process_without_control_groups_has_no_quota(tmp_path):
    assert cpu_quota(tmp_path, tmp_path / "none") is None
    (tmp_path / "old").write_text("1:cpu:/\n")
    assert cpu_quota(tmp_path, tmp_path / "old") is None


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere no BLAS is loaded")
@pytest.mark.skipif(os.cpu_count() == 1, reason="one processor has one thread with or without a limit")
def test_openblas_gets_no_more_threads_than_the_quota_unless_told(python):
    assert " kernels, 1 thread), " in python(LIMITED)
    assert " kernels, 2 threads), " in python(LIMITED, OPENBLAS_NUM_THREADS="2")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere no BLAS is loaded")
def test_idle_threads_sleep_soon_where_processors_are_few_unless_told(python):
    assert python(WAITS, 10**6).split() == ["4", "None"]
    assert python(WAITS, 0).split() == ["None", "None"]
    assert python(WAITS, 10**6, OPENBLAS_THREAD_TIMEOUT="9").split() == ["9", "9"]
