"""Slurm: what tasks are given, that tflaunch goes by it and not by Slurm's variables, and examples/slurm.sbatch.

Once on this machine, and once in an emulated one whose cores have two hardware threads.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from missing import environment
from shared import once, run, shared_directory
from system import slurm

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
START = str(HERE / "slurm.sh")
TFLAUNCH = Path(sys.executable).parent / "tflaunch"
SECONDS = 240
EMULATED_SECONDS = 600

# One job after the other; what they find is asserted by the tests below.
JOBS = """
look() { name=$1; shift; srun "$@" "$PYTHON" "$LOOK" "$OUT/$name" tflaunch; }
look one -n 1 -c 1
look more -n 1 -c 2
look unsaid
look nomultithread -n 1 -c 2 --hint=nomultithread
look tasks -n 2 -c 1
OPTIONS='--cpus 1' look share -n 1 -c 2

# The batch script as it says itself, and with another train.py.
sbatch --wait --output="$OUT/example.log" --chdir="$EXAMPLES" "$EXAMPLES/slurm.sbatch" --epochs 1
cd "$OUT"
status=0
sbatch --wait --output=exit.log "$EXAMPLES/slurm.sbatch" 3 || status=$?
echo $status > exit.status
job=$(sbatch --parsable --output=stopped.log --cpus-per-task=1 "$EXAMPLES/slurm.sbatch")
until [ -e ready ] || [ -z "$(squeue --noheader)" ]; do sleep 0.1; done
scancel --signal=TERM "$job"
while [ -n "$(squeue --noheader)" ]; do sleep 0.1; done
scontrol --oneliner show job "$job" > stopped.state
"""
PROGRAM = """
import json, re, os, signal, sys, time

def save(*_):
    open("saved", "w").close()
    sys.exit()

signal.signal(signal.SIGTERM, save)
mask = re.search(r"Cpus_allowed_list:\\s*(\\S+)", open("/proc/self/status").read())[1]
with open("stopped.0" if len(sys.argv) == 1 else "exit.0", "w") as file:
    json.dump({"mask": mask, "variables": dict(os.environ)}, file)
if len(sys.argv) > 1:
    sys.exit(int(sys.argv[1]))
open("ready", "w").close()
while True:  # a longer wait may begin just after the signal came, and not see it
    time.sleep(0.05)
"""

# A Slurm that binds nothing.
UNBOUND_JOBS = """
srun -n 1 -c 1 "$PYTHON" "$LOOK" "$OUT/unbound" tflaunch
srun -n 1 -c 1 bash -c 'OPTIONS="--cpus $SLURM_CPUS_PER_TASK" exec "$@"' - "$PYTHON" "$LOOK" "$OUT/said" tflaunch
"""

EMULATED_JOBS = """
look() { name=$1; shift; srun "$@" python3 slurm.py "/out/$name" python3 tflaunch.pyz; }
look one -n 1 -c 1
look tasks -n 2 -c 2
look nomultithread -n 1 -c 4 --hint=nomultithread
"""
# 4 cores of two threads each. Slurm wants a name with an address that is not a loopback one.
EMULATED_CPUS = "8,sockets=1,cores=4,threads=2"
EMULATED_START = "ip address add 192.0.2.1/32 dev lo; echo 192.0.2.1 vm >> /etc/hosts; ./slurm.sh run bash -eu jobs.sh"


@pytest.fixture(scope="session")
def shared(tmp_path_factory):
    return shared_directory(tmp_path_factory)


def submit(jobs: str, out: Path, **variables: str) -> None:
    run(
        [START, "run", "bash", "-euc", jobs],
        SECONDS,
        PATH=f"{TFLAUNCH.parent}:{os.environ['PATH']}",
        PYTHON=sys.executable,
        LOOK=slurm.__file__,
        OUT=str(out),
        EXAMPLES=str(ROOT / "examples"),
        **variables,
    )


@pytest.fixture(scope="module")
def jobs(shared, two_cores):
    """The directory with what the tasks found on this machine."""
    environment("slurm")

    def make(out: Path) -> None:
        (out / "train.py").write_text(PROGRAM)
        submit(JOBS, out)
        submit(UNBOUND_JOBS, out, TASK_PLUGIN="task/none")

    return once(shared, "slurm", make)


@pytest.fixture(scope="module")
def emulated_jobs(shared):
    """The same where cores have two hardware threads, under cgroup v2."""
    machine = environment("vm")

    def make(out: Path) -> None:
        files = out / "job"
        files.mkdir()
        subprocess.run([sys.executable, ROOT / "make_pyz.py", files], check=True, capture_output=True)
        shutil.copy(slurm.__file__, files)
        shutil.copy(START, files)
        (files / "jobs.sh").write_text(EMULATED_JOBS)
        command = [
            str(HERE / "vm.sh"),
            "run",
            "-d",
            str(machine),
            "-s",
            EMULATED_CPUS,
            "-j",
            str(files),
            "-o",
            str(out),
        ]
        # Daemons have deadlines, and the TSC of a busy emulator has run ahead of time.
        command += ["-a", "clocksource=hpet", "-w", str(EMULATED_SECONDS), EMULATED_START]
        run(command, None)  # it ends itself after -w, and may have to wait for other machines

    return once(shared, "slurm-emulated", make)


def by_slurm(task: dict) -> set[int]:
    """The CPUs to which Slurm says that it bound the task."""
    variables = task["variables"]
    mask = int(variables["SLURM_CPU_BIND_LIST"].split(",")[int(variables["SLURM_LOCALID"])], 16)
    return {cpu for cpu in range(mask.bit_length()) if mask >> cpu & 1}


def assert_bound(task: dict) -> None:
    """The kernel's mask is the one Slurm made, in the cpuset it made, and tflaunch goes by it."""
    cpus = slurm.numbers(task["mask"])
    assert cpus == by_slurm(task)
    assert cpus <= slurm.numbers(task["cpuset"])
    slurm.assert_that_the_mask_counts(task)


class TestSrun:
    @pytest.mark.parametrize(
        ("name", "cpus_per_task", "cpus"),
        [("one", "1", 1), ("more", "2", 2), ("unsaid", None, 1), ("nomultithread", "2", 2)],
    )
    def test_one_task(self, jobs, name, cpus_per_task, cpus):
        (task,) = slurm.found(jobs / name)
        assert task["variables"].get("SLURM_CPUS_PER_TASK") == cpus_per_task
        assert len(slurm.numbers(task["mask"])) >= cpus  # whole cores are given
        assert_bound(task)

    def test_two_tasks(self, jobs):
        first, second = slurm.found(jobs / "tasks")
        assert not slurm.numbers(first["mask"]) & slurm.numbers(second["mask"])
        assert_bound(first)
        assert_bound(second)

    def test_what_the_user_says_counts(self, jobs):
        (task,) = slurm.found(jobs / "share")
        assert task["explain"]["limit"]["cpus"] == 1
        assert slurm.numbers(task["run"]["mask"]) == slurm.numbers(task["mask"]) == by_slurm(task)
        assert task["run"]["seen"] == 1


class TestWithoutBinding:
    """TaskPlugin=task/none: Slurm counts CPUs, and gives a task all of them."""

    def test_all_cpus_count(self, jobs):
        (task,) = slurm.found(jobs / "unbound")
        assert task["variables"]["SLURM_CPUS_PER_TASK"] == "1"
        assert slurm.numbers(task["mask"]) == os.sched_getaffinity(0)
        slurm.assert_that_the_mask_counts(task)

    def test_the_number_of_slurm_can_be_said(self, jobs):
        (task,) = slurm.found(jobs / "said")
        assert slurm.numbers(task["run"]["mask"]) == slurm.numbers(task["mask"]) == os.sched_getaffinity(0)
        assert task["run"]["variables"]["TF_NUM_INTRAOP_THREADS"] == "1"
        assert task["run"]["seen"] == 1


class TestBatchScript:
    def test_the_example(self, jobs):
        """Its two CPUs are two cores, or on a machine with hardware threads one."""
        said = (jobs / "example.log").read_text()
        assert re.search(r"^test accuracy: 0\.\d+$", said, re.MULTILINE)
        settings = dict(re.findall(r"^  (\S.*\S)  +(\S+)$", said, re.MULTILINE))
        assert settings["CPUs this process may use"] == "2"
        (more,) = slurm.found(jobs / "more")
        assert settings["TF_NUM_INTRAOP_THREADS"] == str(more["cores"])

    def test_exit_status(self, jobs):
        assert (jobs / "exit.status").read_text() == "3\n", (jobs / "exit.log").read_text()

    @pytest.mark.parametrize(("name", "cpus_per_task"), [("exit", "2"), ("stopped", "1")])
    def test_cpus(self, jobs, name, cpus_per_task):
        (program,) = slurm.found(jobs / name)
        variables, cpus = program["variables"], slurm.numbers(program["mask"])
        assert variables["SLURM_CPUS_PER_TASK"] == cpus_per_task
        assert len(cpus) >= int(cpus_per_task)
        assert cpus == by_slurm(program)
        assert variables["PYTHON_CPU_COUNT"] == str(len(cpus))

    def test_a_signal_reaches_the_program(self, jobs):
        assert (jobs / "saved").exists()
        assert " JobState=COMPLETED " in (jobs / "stopped.state").read_text()


class TestHardwareThreads:
    def test_a_core(self, emulated_jobs):
        """One CPU asked for: both threads of a core are given."""
        (task,) = slurm.found(emulated_jobs / "one")
        assert task["variables"]["SLURM_CPUS_PER_TASK"] == "1"
        assert (len(slurm.numbers(task["mask"])), task["cores"]) == (2, 1)
        assert_bound(task)

    def test_two_tasks(self, emulated_jobs):
        first, second = slurm.found(emulated_jobs / "tasks")
        assert not slurm.numbers(first["mask"]) & slurm.numbers(second["mask"])
        for task in first, second:
            assert (len(slurm.numbers(task["mask"])), task["cores"]) == (2, 1)
            assert_bound(task)

    def test_nomultithread(self, emulated_jobs):
        """Slurm's number of CPUs and the cpuset have the siblings, the mask has not."""
        (task,) = slurm.found(emulated_jobs / "nomultithread")
        assert (len(slurm.numbers(task["mask"])), task["cores"]) == (4, 4)
        assert task["variables"]["SLURM_CPUS_ON_NODE"] == "8"
        assert len(slurm.numbers(task["cpuset"])) == 8
        assert_bound(task)
