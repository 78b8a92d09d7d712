"""Free memory from the system's own files."""

import os

from lattice_mlx.free_memory import free_bytes


def test_the_least_of_system_and_control_groups_counts(tmp_path):
    meminfo, membership, root = tmp_path / "meminfo", tmp_path / "membership", tmp_path / "cgroup"
    meminfo.write_text("MemTotal: 100 kB\nMemAvailable:   50 kB\n")
    membership.write_text("0::/outer/inner\n")
    inner = root / "outer" / "inner"
    inner.mkdir(parents=True)
    assert free_bytes(meminfo, root, membership) == 50 * 1024
    (inner / "memory.max").write_text("max\n")
    (inner / "memory.current").write_text("1000\n")
    assert free_bytes(meminfo, root, membership) == 50 * 1024
    (root / "outer" / "memory.max").write_text("9000\n")
    (root / "outer" / "memory.current").write_text("2000\n")
    assert free_bytes(meminfo, root, membership) == 7000
    (root / "outer" / "memory.current").write_text("9500\n")
    assert free_bytes(meminfo, root, membership) == 0


def test_without_meminfo_half_of_physical_memory_counts(tmp_path):
    nowhere = tmp_path / "nothing"
    half = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    assert free_bytes(nowhere, nowhere, nowhere) == half


def test_this_system_has_free_memory():
    assert free_bytes() > 0
