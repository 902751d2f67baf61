"""A control group of our own with a CPU quota, made for a measurement and removed after it.

cgroup v1: cpu.cfs_quota_us and cpu.cfs_period_us      (kernel: Documentation/scheduler/sched-bwc.rst)
cgroup v2: cpu.max                                     (kernel: Documentation/admin-guide/cgroup-v2.rst)
"""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

PERIOD_US = 100_000


class Periods(NamedTuple):
    """Periods in which something in the group wanted to run, those in which it was throttled, and for how long."""

    all: int
    throttled: int
    throttled_seconds: float


class Group:
    """The group `name` at the top of the hierarchy that has the cpu controller. Needs root."""

    def __init__(self, name: str, cpus: float | None) -> None:
        top, self.version = _hierarchy()
        self.path = top / name
        try:
            self.path.mkdir()
            self.set_quota(cpus)
        except OSError as error:
            self.remove()
            raise SystemExit(f"no group with a quota can be made in {top}: {error}\nrun as root, on a host") from None

    def set_quota(self, cpus: float | None) -> None:
        """CPUs that the group may use; None: no limit."""
        quota = None if cpus is None else round(cpus * PERIOD_US)
        if self.version == 1:
            (self.path / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (self.path / "cpu.cfs_quota_us").write_text(str(quota or -1))
        else:
            (self.path / "cpu.max").write_text(f"{quota or 'max'} {PERIOD_US}")

    def command(self, argv: list[str]) -> list[str]:
        """The command, started inside the group: it is there from its first instruction."""
        return ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(self.path / "cgroup.procs"), *argv]

    def periods(self) -> Periods:
        """Counted since the group was made."""
        stat = {name: int(value) for name, value in map(str.split, (self.path / "cpu.stat").read_text().splitlines())}
        seconds = stat["throttled_time"] / 1e9 if self.version == 1 else stat["throttled_usec"] / 1e6
        return Periods(stat["nr_periods"], stat["nr_throttled"], seconds)

    def remove(self) -> None:
        if self.path.exists():
            self.path.rmdir()

    def __enter__(self) -> Group:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None):
        self.remove()


def _hierarchy() -> tuple[Path, int]:
    """The mount point of the hierarchy with the cpu controller, and its version; v1 where both are mounted."""
    v2 = None
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.partition(" ")
        mount_point = Path(before.split()[4])
        if kind == "cgroup" and "cpu" in options.split()[-1].split(","):
            return mount_point, 1
        if kind == "cgroup2" and "cpu" in (mount_point / "cgroup.subtree_control").read_text().split():
            v2 = mount_point
    if v2 is None or os.name != "posix":
        raise SystemExit("no cgroup hierarchy here gives its groups the cpu controller")
    return v2, 2
