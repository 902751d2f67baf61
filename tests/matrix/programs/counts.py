"""The last line of each program: how many CPUs it was told, and how many threads and workers it made."""

from __future__ import annotations

import json
import os
import time


def tell(seen: dict[str, int] | None = None, made: dict[str, int] | None = None) -> None:
    """Print the line; what every Python program can say is in it anyway."""
    told = {"os.cpu_count": os.cpu_count(), "affinity": len(os.sched_getaffinity(0)), **(seen or {})}
    # A thread that was joined is still there for a moment: the smallest of the counts of a tenth of a second.
    threads, end = count_threads(), time.monotonic() + 0.1
    while time.monotonic() < end:
        threads = min(threads, count_threads())
    print(json.dumps({"seen": told, "made": {"threads": threads, **(made or {})}}))


def count_threads() -> int:
    """Those the kernel knows, whoever made them."""
    return len(os.listdir("/proc/self/task"))
