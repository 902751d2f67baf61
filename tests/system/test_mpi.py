"""mpirun of Open MPI: what each rank is given, that tflaunch leaves it so, and what it makes of unbound ranks."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from missing import environment
from shared import run as run_command
from system import slurm

TFLAUNCH = str(Path(sys.executable).parent / "tflaunch")
SECONDS = 120
BOUND = ("--map-by", "slot:pe=1", "--bind-to", "core")
UNBOUND = ("--bind-to", "none")

# A program that uses MPI, and hwloc by itself, which looks at each CPU. The kernel's file tells the true mask.
MPI_PROGRAM = """
import ctypes, json, os, re, sys

def mask():
    return re.search(r"Cpus_allowed_list:\\s*(\\S+)", open("/proc/self/status").read())[1]

found = {"before": mask(), "seen": len(os.sched_getaffinity(0))}
mpi = ctypes.CDLL("libmpi.so.40", ctypes.RTLD_GLOBAL)
world = ctypes.byref(ctypes.c_char.in_dll(mpi, "ompi_mpi_comm_world"))
size, topology = ctypes.c_int(), ctypes.c_void_p()
assert mpi.MPI_Init(None, None) == 0
assert mpi.MPI_Comm_size(world, ctypes.byref(size)) == 0
found.update(size=size.value, initialised=mask())
hwloc = ctypes.CDLL("libhwloc.so.15")
assert hwloc.hwloc_topology_init(ctypes.byref(topology)) == 0
assert hwloc.hwloc_topology_load(topology) == 0
found["after"] = mask()
assert mpi.MPI_Finalize() == 0
with open(sys.argv[1] + "." + os.environ["OMPI_COMM_WORLD_RANK"], "w") as file:
    json.dump(found, file)
"""


@pytest.fixture
def mpirun(two_cores, tmp_path):
    """Run ranks of a command; returns what they wrote."""
    environment("slurm")

    def run(placement, *command: str, count: int = 2, options: str = "") -> list[dict]:
        mpirun = ("mpirun", "--allow-run-as-root", "-n", str(count), *placement, *command)
        run_command(mpirun, SECONDS, OPTIONS=options)
        ranks = slurm.found(tmp_path / "rank")
        assert len(ranks) == count
        return ranks

    return run


@pytest.fixture
def look(mpirun, tmp_path):
    """What tflaunch makes of each rank: look(placement, options)."""

    def run(placement, options: str = "", count: int = 2) -> list[dict]:
        command = (sys.executable, slurm.__file__, str(tmp_path / "rank"), TFLAUNCH)
        return mpirun(placement, *command, count=count, options=options)

    return run


@pytest.fixture
def mpi_program(mpirun, tmp_path):
    """What the program above finds in each rank, under tflaunch with these options."""

    def run(placement, *options: str) -> list[dict]:
        program = tmp_path / "program.py"
        program.write_text(MPI_PROGRAM)
        return mpirun(placement, TFLAUNCH, "run", *options, str(program), str(tmp_path / "rank"))

    return run


class TestBound:
    @pytest.mark.parametrize("options", ["", "--view on", "--bind cores"])
    def test_each_rank_has_its_own_core(self, look, options):
        ranks = look(BOUND, options)
        first, second = (slurm.numbers(rank["mask"]) for rank in ranks)
        assert not first & second
        for rank in ranks:
            slurm.assert_that_the_mask_counts(rank)

    def test_a_rank_with_two_cores(self, look):
        (rank,) = look(("--map-by", "slot:pe=2", "--bind-to", "core"), count=1)
        assert rank["cores"] == 2
        slurm.assert_that_the_mask_counts(rank)

    def test_an_mpi_program_keeps_it(self, mpi_program):
        ranks = mpi_program(BOUND, "--view", "on")
        assert [rank["size"] for rank in ranks] == [2, 2]
        assert not slurm.numbers(ranks[0]["before"]) & slurm.numbers(ranks[1]["before"])
        for rank in ranks:
            assert rank["before"] == rank["initialised"] == rank["after"]


class TestUnbound:
    def test_each_rank_has_all_cpus(self, look):
        """The number of ranks is not looked at: each plans for all that it may use."""
        for rank in look(UNBOUND):
            assert rank["variables"]["OMPI_COMM_WORLD_LOCAL_SIZE"] == "2"
            assert slurm.numbers(rank["mask"]) == os.sched_getaffinity(0)
            slurm.assert_that_the_mask_counts(rank)

    def test_the_share_that_the_user_says(self, look):
        for rank in look(UNBOUND, "--cpus 1"):
            assert slurm.numbers(rank["mask"]) == os.sched_getaffinity(0)
            assert slurm.numbers(rank["run"]["mask"]) == slurm.numbers(rank["mask"])
            assert rank["run"]["variables"]["TF_NUM_INTRAOP_THREADS"] == "1"
            assert rank["run"]["seen"] == 1

    @pytest.mark.parametrize("view", ["on", "off"])
    def test_an_mpi_program_is_not_pinned(self, mpi_program, view):
        """hwloc looks at each CPU that it is told of and puts back the mask that it was told."""
        for rank in mpi_program(UNBOUND, "--cpus", "1", "--view", view):
            assert rank["size"] == 2
            assert slurm.numbers(rank["before"]) == os.sched_getaffinity(0)
            assert rank["before"] == rank["initialised"] == rank["after"]
