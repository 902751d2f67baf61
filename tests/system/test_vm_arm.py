"""A whole ARM machine under qemu, big.LITTLE: four small and four large cores.

It boots once and comes back with what tflaunch said, and what lscpu and the kernel's files say there. The library of
the view is for the architecture that builds it, and so is left out.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from missing import environment
from shared import cpus_of, once, shared_directory
from system import vm


@pytest.fixture(scope="session")
def machine(tmp_path_factory):
    """What came back from the machine."""
    directory = shared_directory(tmp_path_factory)
    place = environment("vm-arm")

    def run(out: Path) -> None:
        vm.boot("vm-arm.sh", place, [once(directory, "built", vm.build) / "tflaunch.pyz"], out, [], "bash arm.sh")

    return vm.read(once(directory, "arm", run))


@pytest.fixture
def capacity(machine):
    """Of each CPU, as the kernel has it."""
    found = re.findall(r"^cpu(\d+)/cpu_capacity:(\d+)$", machine["capacity.txt"], re.MULTILINE)
    return {int(cpu): int(value) for cpu, value in found}


def test_the_machine_is_as_meant(machine, capacity):
    assert sorted(capacity.values()) == [446] * 4 + [1024] * 4
    assert len({row["core"] for row in machine["lscpu"]["cpus"]}) == 8


@pytest.mark.parametrize("place", ["whole", "mixed", "quota"])
def test_kinds_are_those_of_the_capacity(machine, capacity, place):
    look = machine[place]
    allowed = cpus_of(look["allowed"])
    kinds = {kind["kind"]: kind for kind in look["explain"]["machine"]["cpu_kinds"]}
    assert set(kinds) == {"performance", "efficiency"}
    for name, value in (("performance", 1024), ("efficiency", 446)):
        expected = {cpu for cpu in allowed if capacity[cpu] == value}
        assert cpus_of(kinds[name]["cpus"]) == expected
        assert kinds[name]["cores"] == len(expected)


@pytest.mark.parametrize(("place", "cores"), [("whole", 8), ("mixed", 4), ("quota", 8)])
def test_cores(machine, place, cores):
    """A core of each kind is a core."""
    found = machine[place]["explain"]["machine"]
    assert (found["cores"], found["threads_per_core"]) == (cores, 1)


@pytest.mark.parametrize(("place", "limit", "intra_op"), [("whole", 8, 8), ("mixed", 4, 4), ("quota", 1.5, 2)])
def test_plan(machine, place, limit, intra_op):
    look = machine[place]
    assert look["explain"]["limit"]["cpus"] == limit
    assert look["explain"]["plan"]["intra_op"]["value"] == intra_op
    assert look["explain"]["warnings"] == []


@pytest.mark.parametrize("place", ["whole", "mixed"])
def test_the_program_gets_the_plan(machine, place):
    look = machine[place]
    assert look["status"] == 0, look["said"]
    assert look["program"]["variables"]["TF_NUM_INTRAOP_THREADS"] == str(look["explain"]["plan"]["intra_op"]["value"])
    assert look["program"]["mask"] == look["allowed"]


def test_the_faster_cores_are_bound_first(machine, capacity):
    """Where those are idle; here all are."""
    mask = cpus_of(machine["bound"]["program"]["mask"])
    assert [capacity[cpu] for cpu in mask] == [1024, 1024]
