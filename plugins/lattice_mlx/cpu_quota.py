"""How many processors the control group of this process may use at once.

A container that is held to two processors of a large machine still sees all of them, and a thread for each makes a
barrier that is mostly waited for. Knows nothing of what the threads do.
"""

from __future__ import annotations

import math
from pathlib import Path

CGROUP_ROOT = Path("/sys/fs/cgroup")
CGROUP_OF_PROCESS = Path("/proc/self/cgroup")


def cpu_quota(root: Path = CGROUP_ROOT, membership: Path = CGROUP_OF_PROCESS) -> int | None:
    """The smallest ``cpu.max`` from this process's group (cgroup v2) up to the root, rounded up; None without a limit.

    ``cpu.max`` holds a quota (or ``max``) and a period, both in microseconds (Linux, admin-guide/cgroup-v2).
    """
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return None
    path = next((line[3:].strip("/") for line in lines if line.startswith("0::")), None)
    if path is None:
        return None
    group = root / path
    quotas = [quota for folder in (group, *group.parents) if folder.is_relative_to(root) and (quota := _read(folder))]
    return math.ceil(min(quotas)) if quotas else None


def _read(folder: Path) -> float | None:
    try:
        quota, period = (folder / "cpu.max").read_text().split()
        return int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return None
