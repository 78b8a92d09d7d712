"""How much memory this process may still take. Knows nothing of models."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

MEMINFO = Path("/proc/meminfo")
CGROUP_ROOT = Path("/sys/fs/cgroup")
CGROUP_OF_PROCESS = Path("/proc/self/cgroup")


def free_bytes(meminfo: Path = MEMINFO, root: Path = CGROUP_ROOT, membership: Path = CGROUP_OF_PROCESS) -> int | None:
    """Bytes: the least of what the system has available and what each control group (v2) above leaves; None if unknown.

    Where ``MemAvailable`` of proc(5) does not exist, half of the physical memory stands for it.
    """
    bounds = [bound for bound in (_available(meminfo), _group_rest(root, membership)) if bound is not None]
    return min(bounds, default=None)


def _available(meminfo: Path) -> int | None:
    try:
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    except (OSError, ValueError):
        return None


def _group_rest(root: Path, membership: Path) -> int | None:
    """The least of ``memory.max - memory.current`` from this process's group up to the root."""
    try:
        path = next(line[3:].strip("/") for line in membership.read_text().splitlines() if line.startswith("0::"))
    except (OSError, StopIteration):
        return None
    group = root / path
    rests = []
    for folder in (group, *group.parents):
        if not folder.is_relative_to(root):
            break
        # The root has no such files, and a group without a limit says "max".
        with suppress(OSError, ValueError):
            rests.append(int((folder / "memory.max").read_text()) - int((folder / "memory.current").read_text()))
    return max(0, min(rests)) if rests else None
