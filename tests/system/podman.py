"""Containers by podman, with what the kernel says about them on the host."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from missing import environment

ROOT = Path(__file__).parents[2]
# No container takes this long unless something hangs.
SECONDS = 300


def podman(*arguments: str, check: bool = True, **keywords: object) -> subprocess.CompletedProcess[str]:
    """podman with the settings and the images of the environment, to its end."""
    settings: dict[str, object] = {
        "stdin": subprocess.DEVNULL,
        "capture_output": True,
        "text": True,
        "timeout": SECONDS,
        **keywords,
    }
    done = subprocess.run([str(environment("podman") / "podman"), *arguments], check=False, **settings)
    assert done.returncode == 0 or not check, f"podman {' '.join(arguments)}: {done.stdout}{done.stderr}"
    return done


class Container:
    """A running container: its commands, and its first process and cgroups as the host sees them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.pid = int(podman("inspect", "--type", "container", "--format", "{{.State.Pid}}", name).stdout)

    def run(self, *command: str, variables: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command in the container to its end."""
        options = [f"--env={name}={value}" for name, value in (variables or {}).items()]
        return podman("exec", *options, self.name, *command, check=False)

    def end(self) -> subprocess.CompletedProcess[str]:
        """Wait for the end of its first process; what that wrote, and its exit status."""
        status = int(podman("wait", self.name).stdout)
        logs = podman("logs", self.name)
        return subprocess.CompletedProcess(self.name, status, logs.stdout, logs.stderr)

    @property
    def allowed_cpus(self) -> str:
        """The CPUs that the kernel lets its first process use."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            name, _, value = line.partition(":")
            if name == "Cpus_allowed_list":
                return value.strip()
        raise AssertionError(f"/proc/{self.pid}/status names no CPUs")

    def quotas(self) -> list[float | None]:
        """The quota of its cgroup and of each one above it, in CPUs; None where there is none."""
        group = cpu_group(self.pid)
        return [quota_of(directory) for directory in (group, *group.parents) if has_quota(directory)]


def cpu_group(pid: int) -> Path:
    """The directory of the cgroup that limits the CPU time of a process."""
    mount_point, version = cpu_hierarchy()
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        number, controllers, path = line.split(":", 2)
        if (version == 1 and "cpu" in controllers.split(",")) or (version == 2 and number == "0"):
            return mount_point / path.lstrip("/")
    raise AssertionError(f"the process {pid} is in no cgroup")


def cpu_hierarchy() -> tuple[Path, int]:
    """Where the cgroups with the cpu controller are mounted, and their version."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, mount_point, kind, options, *_ = line.split(" ")
        if kind == "cgroup" and "cpu" in options.split(","):
            return Path(mount_point), 1
    return Path("/sys/fs/cgroup"), 2


def has_quota(directory: Path) -> bool:
    """Only cgroups have these files, and the root of cgroup v2 has none."""
    return (directory / "cpu.cfs_quota_us").exists() or (directory / "cpu.max").exists()


def quota_of(directory: Path) -> float | None:
    """What the kernel enforces in this cgroup."""
    if (directory / "cpu.max").exists():
        quota, period = (directory / "cpu.max").read_text().split()
    else:
        quota, period = ((directory / f"cpu.cfs_{name}_us").read_text().strip() for name in ("quota", "period"))
    return None if quota in ("max", "-1") else int(quota) / int(period)


@contextmanager
def running(*arguments: str, name: str) -> Iterator[Container]:
    """A container started by these arguments of `podman run`; removed afterwards, whatever it does then."""
    try:
        podman("run", "--detach", f"--name={name}", "--network=none", *arguments)
        yield Container(name)
    finally:
        podman("rm", "--force", "--time=0", "--volumes", name, check=False)


def this_machine() -> list[str]:
    """Arguments for a container with this machine's own files as its root, so with the project's environment.

    It writes beside them. An overlay shows one file system, so what lies on another is mounted.
    """
    device = os.stat("/").st_dev
    places = sorted({str(ROOT), sys.prefix, sys.base_prefix})
    volumes = [f"--volume={place}:{place}:ro" for place in places if os.stat(place).st_dev != device]
    return [*volumes, "--rootfs", "/:O"]
