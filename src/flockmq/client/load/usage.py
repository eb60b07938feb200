"""CPU time and memory of other processes (the broker's), as the system's process table has them.

Linux only; elsewhere the answer is None and the figure is left out.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path


def cpu_seconds(pids: Sequence[int]) -> float | None:
    """CPU time that the processes have used so far, user and system together."""
    if not pids:
        return None
    total = 0
    try:
        for pid in pids:
            # The name in parentheses may hold anything, so fields are counted from behind it.
            fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])
    except (OSError, IndexError, ValueError):
        return None
    return total / os.sysconf("SC_CLK_TCK")


def memory_kb(pids: Sequence[int]) -> float | None:
    """Resident memory of the processes."""
    if not pids:
        return None
    total = 0
    try:
        for pid in pids:
            total += int(Path(f"/proc/{pid}/statm").read_text(encoding="utf-8").split()[1])
    except (OSError, IndexError, ValueError):
        return None
    return total * os.sysconf("SC_PAGE_SIZE") / 1_024


def pin(cpus: Sequence[int]) -> None:
    """Bind this process to processors, where the system can."""
    if cpus and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cpus)
