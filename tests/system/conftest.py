"""Real cgroups: groups that the tests make themselves, put only their own processes into, and remove again."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from missing import missing
from shared import plain_environ

PERIOD_US = 100_000


class Cgroups:
    """The hierarchy of one controller, and the groups that were made in it.

    mount_point: where its groups are directories; version: 1 or 2 (cgroups(7)).
    """

    def __init__(self, controller: str) -> None:
        self.controller = controller
        self.made: list[Path] = []
        self.version, self.mount_point = self._find()

    def _find(self) -> tuple[int, Path]:
        v2 = None
        for line in Path("/proc/self/mounts").read_text().splitlines():
            _, mount_point, kind, options, *_ = line.split(" ")
            if kind == "cgroup" and self.controller in options.split(","):
                return 1, Path(mount_point)
            if kind == "cgroup2":
                v2 = Path(mount_point)
        if v2 is None:
            missing(f"no cgroup hierarchy with the {self.controller} controller is mounted")
        if self.controller not in (v2 / "cgroup.subtree_control").read_text().split():
            missing(f"{v2} gives its groups no {self.controller} controller (cgroup.subtree_control)")
        return 2, v2

    def make(self, parent: Path | None = None) -> Path:
        """A new group without a limit, below the mount point or another group."""
        group = (parent or self.mount_point) / f"tflaunch-test-{self.controller}-{os.getpid()}-{len(self.made)}"
        try:
            if parent is not None and self.version == 2:
                (parent / "cgroup.subtree_control").write_text(f"+{self.controller}")
            group.mkdir()
        except OSError as error:
            missing(f"cannot make a cgroup: {error}")
        self.made.append(group)
        return group

    def remove(self) -> None:
        """Remove the groups, innermost first. A process that has just ended may still be in one for a moment."""
        deadline = time.monotonic() + 10
        for group in reversed(self.made):
            while True:
                try:
                    group.rmdir()
                    break
                except OSError:
                    if time.monotonic() > deadline:
                        raise
        self.made.clear()


class CpuCgroups(Cgroups):
    """Groups with a quota."""

    def __init__(self) -> None:
        super().__init__("cpu")

    def limit(self, group: Path, cpus: float) -> str:
        """Set the quota; returns the file that has it, as the kernel shows it."""
        quota_us = int(cpus * PERIOD_US)
        if self.version == 1:
            (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (group / "cpu.cfs_quota_us").write_text(str(quota_us))
            return str(group / "cpu.cfs_quota_us")
        (group / "cpu.max").write_text(f"{quota_us} {PERIOD_US}")
        return str(group / "cpu.max")


class CpusetCgroups(Cgroups):
    """Groups with a set of CPUs."""

    def __init__(self) -> None:
        super().__init__("cpuset")

    def limit(self, group: Path, cpus: str) -> None:
        if self.version == 1:  # there a group must have memory nodes before a process can enter it
            (group / "cpuset.mems").write_text((self.mount_point / "cpuset.mems").read_text())
        (group / "cpuset.cpus").write_text(cpus)


@pytest.fixture
def cpu_cgroups() -> Iterator[CpuCgroups]:
    cgroups = CpuCgroups()
    yield cgroups
    cgroups.remove()


@pytest.fixture
def cpuset_cgroups() -> Iterator[CpusetCgroups]:
    cgroups = CpusetCgroups()
    yield cgroups
    cgroups.remove()


@pytest.fixture(scope="session")
def two_cores() -> None:
    """Quotas above one CPU show only where this process may use two cores."""
    cpus = os.sched_getaffinity(0)
    siblings = set()
    for cpu in cpus:
        path = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        siblings.add(path.read_text() if path.exists() else str(cpu))
    if len(siblings) < 2:
        missing(f"needs two cores, and there is {siblings}")


@pytest.fixture
def tflaunch_in(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run tflaunch in these groups: tflaunch_in([group], "explain", "--json"); only that process enters them."""
    program = str(Path(sys.executable).parent / "tflaunch")
    environment = plain_environ()

    def run(
        groups: list[Path], *arguments: str, variables: dict[str, str] | None = None, seconds: float = 60
    ) -> subprocess.CompletedProcess[str]:
        enter = "".join(f'echo $$ > "${number}/cgroup.procs" && ' for number in range(1, len(groups) + 1))
        shell = f'{enter}shift {len(groups)} && exec "$@"'
        return subprocess.run(
            ["sh", "-c", shell, "sh", *map(str, groups), program, *arguments],
            env={**environment, **(variables or {})},
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )

    return run
