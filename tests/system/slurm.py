"""What one task of Slurm or one rank of mpirun is given, by the kernel's files, and what tflaunch makes of it.

    srun -n 2 python3 slurm.py PREFIX TFLAUNCH...     PREFIX.0 and PREFIX.1 get a JSON document each

TFLAUNCH is the command; the variable OPTIONS has options for it. It needs nothing but Python, and util-linux for an
independent opinion on the affinity mask and on cores. Tests import the rest of it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

# Runs under tflaunch: the true mask, by the kernel's file, which no view changes; what is seen; what was exported.
PROGRAM = """
import json, os, re, sys
mask = re.search(r"Cpus_allowed_list:\\s*(\\S+)", open("/proc/self/status").read())[1]
seen = len(os.sched_getaffinity(0))
print(json.dumps({"mask": mask, "seen": seen, "variables": dict(os.environ)}))
"""
SECONDS = 240  # in an emulated machine


def output(*command: str) -> str:
    """Standard output of a command that succeeds."""
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, timeout=SECONDS, check=True
    ).stdout


def cpuset() -> str | None:
    """The CPUs of the task's cgroup; None where it is the root of cgroup v2, which has no such file."""
    groups = Path("/proc/self/cgroup").read_text()
    v1 = re.search(r"^\d+:(?:.*,)?cpuset(?:,.*)?:(.*)$", groups, re.MULTILINE)
    v2 = re.search(r"^0::(.*)$", groups, re.MULTILINE)
    if v1:
        file = Path("/sys/fs/cgroup/cpuset" + v1[1], "cpuset.effective_cpus")
    else:
        file = Path("/sys/fs/cgroup" + v2[1], "cpuset.cpus.effective")
    return file.read_text().strip() if file.exists() else None


def cores(cpus: str) -> int:
    """The number of cores of these CPUs, by lscpu."""
    core_of = dict(
        line.split(",", 1) for line in output("lscpu", "--parse=CPU,CORE,SOCKET").splitlines() if line[0] != "#"
    )
    return len({core_of[str(cpu)] for cpu in numbers(cpus)})


def numbers(cpus: str) -> set[int]:
    """The CPUs of a list such as 0-3,8, which is how the kernel, taskset and tflaunch write them."""
    parts = (part.split("-") for part in cpus.split(","))
    return {cpu for part in parts for cpu in range(int(part[0]), int(part[-1]) + 1)}


def look(*tflaunch: str) -> dict[str, object]:
    """All that the tests want to know of this task."""
    options = os.environ.pop("OPTIONS", "").split()
    mask = output("taskset", "-cp", str(os.getpid())).split()[-1]
    run = [*tflaunch, "run", *options, "--no-python", sys.executable, "-c", PROGRAM]
    return {
        "mask": mask,
        "cpuset": cpuset(),
        "cores": cores(mask),
        "variables": {name: value for name, value in os.environ.items() if name.startswith(("SLURM_", "OMPI_"))},
        "explain": json.loads(output(*tflaunch, "explain", *options, "--json")),
        "run": json.loads(output(*run)),
    }


def assert_that_the_mask_counts(task: dict) -> None:
    """tflaunch sees the CPUs that the kernel gave, plans for them, and the program has the same ones."""
    cpus = numbers(task["mask"])
    document, program = task["explain"], task["run"]
    assert numbers(document["machine"]["allowed_cpus"]) == cpus
    assert (document["limit"]["cpus"], document["limit"]["bound_by"]) == (len(cpus), "affinity")
    assert document["machine"]["cores"] == task["cores"]
    assert document["plan"]["intra_op"]["value"] == task["cores"]
    assert numbers(program["mask"]) == cpus
    assert program["seen"] == len(cpus)
    assert program["variables"]["TF_NUM_INTRAOP_THREADS"] == str(task["cores"])
    assert program["variables"]["OMP_NUM_THREADS"] == str(task["cores"])
    assert program["variables"]["PYTHON_CPU_COUNT"] == str(len(cpus))


def found(prefix: Path) -> list[dict]:
    """What the tasks wrote, in the order of their ranks."""
    files = sorted(prefix.parent.glob(f"{prefix.name}.[0-9]*"), key=lambda file: int(file.suffix[1:]))
    return [json.loads(file.read_text()) for file in files]


if __name__ == "__main__":
    rank = os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ.get("SLURM_PROCID") or "0"
    Path(f"{sys.argv[1]}.{rank}").write_text(json.dumps(look(*sys.argv[2:])))
