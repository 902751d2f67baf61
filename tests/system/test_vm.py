"""Whole machines under qemu, with CPUs, control groups and a systemd that this one does not have.

Each boots once and comes back with what tflaunch said in several places, and what lscpu, numactl, lstopo, taskset
and the kernel's files say there.
"""

from __future__ import annotations

import math
import re

import pytest
from missing import environment
from shared import cpus_of, once, shared_directory
from system import vm

# The options of vm.sh and what runs inside.
MACHINES = {
    "v2": (["-s", "16,sockets=2,cores=4,threads=2", "-n", "2"], "bash v2.sh"),
    "v1": (["-s", "4,maxcpus=8", "-c", "v1"], "bash v1.sh 0-2 2"),
    "hybrid": (["-s", "4,cores=2,threads=2", "-c", "hybrid", "-a", "nosmt"], "bash v1.sh 2"),
    "systemd": (["-s", "4", "-S"], "bash systemd.sh"),
    "many": (["-s", "128,sockets=2,cores=32,threads=2", "-n", "2"], "bash many.sh"),
    "tensorflow": (["-s", "64", "-m", "6144", "-t", "-w", "1200"], "bash tensorflow.sh"),
}


@pytest.fixture(scope="session")
def machine(tmp_path_factory):
    """What came back from a machine."""
    directory = shared_directory(tmp_path_factory)

    def results(name):
        place = environment("vm")
        options, command = MACHINES[name]
        built = once(directory, "built", vm.build)
        out = once(directory, name, lambda out: vm.boot("vm.sh", place, built.iterdir(), out, options, command))
        return vm.read(out)

    return results


def looks(results):
    return {name: result for name, result in results.items() if isinstance(result, dict) and "explain" in result}


def runs(results):
    """Those with a program."""
    return {name: look for name, look in looks(results).items() if "program" in look}


def rows(results):
    """CPU, core, socket and NUMA node of each online CPU, from lscpu."""
    lines = [line for line in results["lscpu.txt"].splitlines() if not line.startswith("#")]
    return [dict(zip(("cpu", "core", "socket", "node"), map(int, line.split(",")))) for line in lines]


def cores(results, allowed):
    """The core of each of these CPUs."""
    return [(row["socket"], row["core"]) for row in rows(results) if row["cpu"] in allowed]


@pytest.mark.parametrize("name", [name for name in MACHINES if name != "tensorflow"])
class TestEveryPlace:
    """In each place of each machine."""

    def test_the_cpus_are_those_of_the_kernel_and_lscpu(self, machine, name):
        results = machine(name)
        online = {row["cpu"] for row in rows(results)}
        for place, look in looks(results).items():
            found, allowed = look["explain"]["machine"], cpus_of(look["allowed"])
            assert cpus_of(found["online_cpus"]) == online, place
            assert cpus_of(found["allowed_cpus"]) == allowed, place
            assert allowed <= online, place
            here = cores(results, allowed)
            assert found["cores"] == len(set(here)), place
            assert found["sockets"] == len({socket for socket, _ in here}), place
            assert found["threads_per_core"] == max(map(here.count, here)), place
            assert [kind["cores"] for kind in found["cpu_kinds"]] == [len(set(here))], place

    def test_the_nodes_are_those_of_numactl(self, machine, name):
        results = machine(name)
        nodes = re.findall(r"^node (\d+) cpus: ([\d ]+)$", results["numactl.txt"], re.MULTILINE)
        assert nodes
        for place, look in looks(results).items():
            allowed = cpus_of(look["allowed"])
            expected = {node: set(map(int, found.split())) & allowed for node, found in nodes}
            found = {node: cpus_of(text) for node, text in look["explain"]["machine"]["numa_nodes"].items()}
            assert found == {node: here for node, here in expected.items() if here}, place

    def test_the_program_gets_the_plan_and_sees_the_limit(self, machine, name):
        for place, look in runs(machine(name)).items():
            plan, limit, program = look["explain"]["plan"], look["explain"]["limit"]["cpus"], look["program"]
            assert look["status"] == 0, (place, look["said"])
            assert program["variables"]["TF_NUM_INTRAOP_THREADS"] == str(plan["intra_op"]["value"]), place
            assert program["variables"]["TF_NUM_INTEROP_THREADS"] == str(plan["inter_op"]["value"]), place
            assert program["variables"]["OMP_NUM_THREADS"] == str(plan["omp"]["value"]), place
            affinity, python, online = program["sees"]
            assert affinity == math.ceil(limit), place
            if affinity < len(cpus_of(program["mask"])):  # the view; without it the other two are the host's
                assert (python, online) == (affinity, affinity), place

    def test_only_a_bound_program_may_run_on_fewer_cpus(self, machine, name):
        for place, look in runs(machine(name)).items():
            mask, allowed = cpus_of(look["program"]["mask"]), cpus_of(look["allowed"])
            if look["explain"]["binding"] is None:
                assert mask == allowed, place
            else:
                assert mask < allowed, place

    def test_one_line_is_said(self, machine, name):
        for place, look in runs(machine(name)).items():
            assert look["said"].startswith("tflaunch: "), place
            assert look["said"].count("\n") == 1 + len(look["explain"]["warnings"]), (place, look["said"])


@pytest.mark.parametrize(
    ("name", "place", "quota", "file", "limit", "intra_op"),
    [
        # The quotas are those that the scripts in vm/ write; the numbers of threads those of docs/policy.md.
        ("v2", "whole", None, None, 16, 8),
        ("v2", "tighter-parent", 1.5, "/low/cpu.max", 1.5, 2),
        ("v2", "tighter-child", 0.5, "/wide/narrow/cpu.max", 0.5, 1),
        ("v2", "quota-and-cpuset", 2.5, "/both/cpu.max", 2.5, 3),
        ("v2", "quota-above-cpuset", 6, "/above/cpu.max", 4, 2),
        ("v2", "namespace", 2, "/sys/fs/cgroup/cpu.max", 2, 2),
        ("v2", "podman", 2.5, "/cpu.max", 2.5, 3),
        ("v1", "whole", None, None, 3, 3),
        ("v1", "cpuset", None, None, 2, 2),
        ("v1", "tighter-parent", 1.5, "/low/cpu.cfs_quota_us", 1.5, 2),
        ("v1", "tighter-child", 0.5, "/wide/narrow/cpu.cfs_quota_us", 0.5, 1),
        ("v1", "quota-above-cpuset", 3, "/three/cpu.cfs_quota_us", 2, 2),
        ("hybrid", "whole", None, None, 2, 2),
        ("hybrid", "cpuset", None, None, 1, 1),
        ("hybrid", "tighter-parent", 1.5, "/low/cpu.cfs_quota_us", 1.5, 2),
        ("hybrid", "tighter-child", 0.5, "/wide/narrow/cpu.cfs_quota_us", 0.5, 1),
        ("hybrid", "quota-above-cpuset", 3, "/three/cpu.cfs_quota_us", 1, 1),
        ("systemd", "quota", 1.5, "/cpu.max", 1.5, 2),
        ("systemd", "cpus", None, None, 2, 2),
        ("systemd", "both", 2.5, "/cpu.max", 2.5, 3),
        ("systemd", "tighter-slice", 0.75, "/outer.slice/cpu.max", 0.75, 1),
        ("many", "whole", None, None, 128, 64),
        ("many", "quota", 2, "/outer/cpu.max", 2, 2),
    ],
)
def test_limit(machine, name, place, quota, file, limit, intra_op):
    look = machine(name)[place]
    found = look["explain"]["limit"]
    assert found["cgroup_version"] == (1 if name in ("v1", "hybrid") else 2)
    assert (found["quota_cpus"], found["cpus"]) == (quota, limit)
    assert found["bound_by"] == ("quota" if limit == quota else "affinity")
    if file is None:
        assert found["quota_source"] is None
    else:
        assert found["quota_source"].split(": ")[0].endswith(file)
    assert look["explain"]["plan"]["intra_op"]["value"] == intra_op
    assert look["explain"]["warnings"] == []


class TestTopology:
    """The machines are what they are meant to be, as other programs see them."""

    @pytest.mark.parametrize(("name", "sockets", "physical"), [("v2", 2, 8), ("many", 2, 64)])
    def test_cores_and_sockets_as_lstopo_counts_them(self, machine, name, sockets, physical):
        results = machine(name)
        found = results["whole"]["explain"]["machine"]
        assert (len(results["packages.txt"].splitlines()), len(results["cores.txt"].splitlines())) == (
            sockets,
            physical,
        )
        assert (found["sockets"], found["cores"], found["threads_per_core"]) == (sockets, physical, 2)

    def test_offline_cpus_are_not_counted(self, machine):
        """8 possible, 4 present, CPU 2 switched off by hand."""
        found = machine("v1")["whole"]["explain"]["machine"]
        assert (found["online_cpus"], found["allowed_cpus"], found["cores"]) == ("0-1,3", "0-1,3", 3)

    def test_nosmt(self, machine):
        """The kernel keeps the second thread of each of the two cores offline."""
        found = machine("hybrid")["whole"]["explain"]["machine"]
        assert (found["online_cpus"], found["cores"], found["threads_per_core"]) == ("0,2", 2, 1)

    def test_explain_draws_128_cpus(self, machine):
        results = machine("many")
        assert len(rows(results)) == 128
        assert results["explain.txt"].count("■■") == len(set(cores(results, range(128))))


class TestBinding:
    """--bind cores, as the kernel has it."""

    @pytest.mark.parametrize(
        ("place", "count", "physical", "intra_op"),
        [("bound", 3, 3, 3), ("bound-siblings", 6, 4, 4), ("quota-and-cpuset-bound", 3, 2, 2)],
    )
    def test_cores_before_siblings_inside_one_node(self, machine, place, count, physical, intra_op):
        results = machine("v2")
        look = results[place]
        mask = cpus_of(look["program"]["mask"])
        assert len(mask) == count
        assert mask <= cpus_of(look["allowed"])
        assert len(set(cores(results, mask))) == physical
        assert len({row["node"] for row in rows(results) if row["cpu"] in mask}) == 1
        assert cpus_of(look["explain"]["binding"]["cpus"]) <= cpus_of(look["allowed"])
        assert look["program"]["variables"]["TF_NUM_INTRAOP_THREADS"] == str(intra_op)


class TestContainers:
    def test_podman(self, machine):
        """--cpus 2.5 --cpuset-cpus 8-13: three cores of the second socket."""
        look = machine("v2")["podman"]
        assert look["cgroup"] == "0::/\n"
        assert look["allowed"] == "8-13"
        assert look["explain"]["machine"]["cores"] == 3
        assert look["program"]["sees"] == [3, 3, 3]

    def test_a_namespace_below_what_is_mounted(self, machine):
        """The group is there, but nothing says which one it is: its quota is no answer, and that is said."""
        look = machine("v2")["namespace-of-the-host"]
        assert look["cgroup"] == "0::/\n"
        assert look["explain"]["limit"]["quota_cpus"] is None
        assert len(look["explain"]["warnings"]) == 1


class TestTensorFlow:
    """Pools of a real TensorFlow on 64 CPUs, under a quota of 2."""

    def test_pools_and_threads(self, machine):
        results = machine("tensorflow")
        assert results["nproc.txt"] == "64\n"
        program = results["pools"]
        assert program["total"] == sum(range(1, 257))
        assert program["threads"] == len(program["names"])
        # One pool for each CPU of the machine would be more than 64.
        assert program["threads"] < 32, program["names"]

    def test_what_tensorflow_logs(self, machine):
        log = machine("tensorflow")["pools.log"]
        assert set(re.findall(r"num_threads=(\d+)", log)) == {"2"}, log
        assert set(re.findall(r"inter op parallelism threads: (\d+)", log)) == {"2"}, log
