"""The last line of each program: how many CPUs it was told, and how many threads and workers it made."""

from __future__ import annotations

import json
import os


def tell(seen: dict[str, int] | None = None, made: dict[str, int] | None = None) -> None:
    """Print the line; what every Python program can say is in it anyway."""
    told = {"os.cpu_count": os.cpu_count(), "affinity": len(os.sched_getaffinity(0)), **(seen or {})}
    print(json.dumps({"seen": told, "made": {"threads": len(os.listdir("/proc/self/task")), **(made or {})}}))
