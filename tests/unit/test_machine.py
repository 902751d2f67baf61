from __future__ import annotations

import json
import os
import subprocess
import sys

import psutil
import pytest
from trees import cores, expand, nodes, online, per_cpu, smt, sockets, status

from tflaunch.files import Files
from tflaunch.machine import Machine, read_details, read_machine
from tflaunch.topology import read_cores, read_numa_nodes, read_sockets


def cpus(cpulist):
    return frozenset(expand(cpulist))


def sets(*cpulists):
    return {cpus(cpulist) for cpulist in cpulists}


class NoKernelFiles(Files):
    """This machine, as if its kernel had neither /proc nor /sys."""

    def read(self, path):
        return None

    def names(self, directory):
        return []


class TestRecordedMachine:
    """The mask in the status file is allowed, less what is offline; without a mask all online CPUs are."""

    def test_a_laptop(self, tree):
        files = tree(online("0-7") | cores(*smt(4, 2)) | status("0-7"))
        assert read_machine(files) == Machine(
            cpus("0-7"), cpus("0-7"), (cpus("0-1"), cpus("2-3"), cpus("4-5"), cpus("6-7"))
        )
        assert files.problems() == ()

    @pytest.mark.parametrize(
        ("kernel", "mask", "allowed", "core_count"),
        [
            pytest.param(online("0-7"), "2,5", "2,5", 2, id="scattered"),
            pytest.param(online("0-7"), "4-7", "4-7", 2, id="without CPU 0"),
            pytest.param(online("0-3", "4-127"), "0-127", "0-3", 2, id="a virtual machine with room for 128"),
            pytest.param(online("0-3", "4-127"), "2-127", "2-3", 1, id="the same with a mask"),
            pytest.param(online("0-3,6-7", "4-5"), "0-7", "0-3,6-7", 3, id="offline in the middle"),
            pytest.param(online("0-7", "0-1"), "0-3", "0-3", 2, id="online and offline at once"),
            # lxcfs shows a container's CPUs as 0-1, while the mask has the host's numbers
            pytest.param(online("0-1"), "12,17", "12,17", 2, id="renumbered"),
            pytest.param(online("0-1"), "0,17", "0,17", 2, id="renumbered, partly the same"),
            pytest.param(online("0-1"), "0-7", "0-7", 4, id="narrower than the mask"),
        ],
    )
    def test_mask(self, tree, kernel, mask, allowed, core_count):
        machine = read_machine(tree(kernel | cores(*smt(4, 2)) | status(mask)))
        assert machine.allowed == cpus(allowed)
        assert len(machine.cores) == core_count

    def test_half_of_the_cpus_switched_off(self, tree):
        files = tree(
            online("0-3", "4-7") | cores("0", "1", "2", "3") | per_cpu("online", {"1-3": 1, "4-7": 0}) | status("0-3")
        )
        machine = read_machine(files)
        assert (machine.online, machine.allowed, len(machine.cores)) == (cpus("0-3"), cpus("0-3"), 4)

    @pytest.mark.parametrize(
        "text", ["", "Name:\tpython\n", "Cpus_allowed:\tff\n", "Cpus_allowed_list\t0-1\n"], ids=repr
    )
    def test_no_mask(self, tree, text):
        files = tree(online("0-3") | {"/proc/self/status": text})
        assert read_machine(files).allowed == cpus("0-3")
        assert files.problems() == ()

    def test_no_status_file(self, tree):
        assert read_machine(tree(online("0-3"))).allowed == cpus("0-3")

    @pytest.mark.parametrize("text", ["x", "3-1", "0-", "0-99999999", "-1"])
    def test_a_damaged_mask_costs_one_warning(self, tree, text):
        files = tree(online("0-3") | status(text))
        assert read_machine(files).allowed == cpus("0-3")
        (problem,) = files.problems()
        assert (problem.code, "/proc/self/status" in problem.message) == ("malformed_file", True)

    def test_an_empty_mask_says_nothing(self, tree):
        """A running process has a CPU, so this is no mask."""
        machine = read_machine(tree(online("0-3") | status("")))
        assert len(machine.allowed) == len(machine.cores) == 4

    def test_only_cpuinfo(self, tree):
        blocks = "".join(f"processor : {n}\nphysical id : {n // 4}\ncore id : {n % 2}\n\n" for n in range(8))
        machine = read_machine(tree({"/proc/cpuinfo": blocks}))
        assert machine.online == machine.allowed == cpus("0-7")
        assert set(machine.cores) == sets("0,2", "1,3", "4,6", "5,7")

    def test_only_cpuinfo_and_a_mask(self, tree):
        blocks = "".join(f"processor {n}: version = FF,  machine = 2964\n" for n in range(6))
        machine = read_machine(tree({"/proc/cpuinfo": blocks} | status("1-2,5")))
        assert set(machine.cores) == sets("1", "2", "5")

    def test_only_a_mask(self, tree):
        machine = read_machine(tree(status("4-5")))
        assert machine == Machine(cpus("4-5"), cpus("4-5"), (cpus("4"), cpus("5")))

    def test_nothing(self, tree):
        files = tree({})
        assert read_machine(files) == Machine(cpus("0"), cpus("0"), (cpus("0"),))
        (problem,) = files.problems()
        assert problem.code == "no_cpus_found"

    def test_a_board_without_core_ids(self, tree):
        blocks = "".join(f"processor : {n}\nFeatures : fp asimd\nCPU part : 0xd03\n\n" for n in range(4))
        machine = read_machine(tree({"/proc/cpuinfo": blocks} | status("0-3")))
        assert len(machine.cores) == 4

    def test_1152_cpus(self, tree):
        files = tree(
            online("0-1151") | cores(*smt(576, 2, split=True)) | status("0-1151") | nodes({0: "0-575", 1: "576-1151"})
        )
        machine = read_machine(files)
        assert len(machine.allowed) == 1152
        assert len(machine.cores) == 576
        assert {node: len(members) for node, members in read_details(files, machine).numa_nodes.items()} == {
            0: 576,
            1: 576,
        }
        assert files.problems() == ()


class TestDetails:
    """What people are shown is counted over the allowed CPUs only."""

    def test_a_part_of_a_server(self, tree):
        files = tree(
            online("0-15")
            | cores(*smt(8, 2, split=True))
            | sockets("0-3,8-11", "4-7,12-15")
            | nodes({0: "0-3,8-11", 1: "4-7,12-15", 2: ""})
            | status("4-5,12-13")
            | {"/proc/cpuinfo": "processor : 0\nmodel name : Example 9000\nflags : fpu avx2 fma avx512f amx_tile\n"}
        )
        machine = read_machine(files)
        details = read_details(files, machine)
        assert len(machine.cores) == 2
        assert details.sockets == {1: cpus("4-5,12-13")}
        assert details.numa_nodes == {1: cpus("4-5,12-13")}
        assert [(kind.kind, kind.cpus) for kind in details.cpu_kinds] == [("performance", cpus("4-5,12-13"))]
        assert details.model == "Example 9000"
        assert details.instruction_sets == ("AVX2", "FMA", "AVX-512", "AMX")

    def test_arm(self, tree):
        files = tree(
            online("0-5")
            | per_cpu("cpu_capacity", {"0-3": 446, "4-5": 1024})
            | {"/proc/cpuinfo": "processor : 0\nFeatures : fp asimd sve bf16\nCPU part : 0xd40\n"}
            | {"/sys/firmware/devicetree/base/model": "Example Board 5\0"}
        )
        details = read_details(files, read_machine(files))
        assert [(kind.kind, kind.cpus) for kind in details.cpu_kinds] == [
            ("performance", cpus("4-5")),
            ("efficiency", cpus("0-3")),
        ]
        assert details.model == "Example Board 5"
        assert details.instruction_sets == ("NEON", "SVE", "BF16")

    def test_a_recorded_machine_is_not_described_by_this_one(self, tree):
        files = tree(online("0"))
        details = read_details(files, read_machine(files))
        assert (details.model, details.instruction_sets) == (None, ())


class TestThisMachine:
    """The running system is read as other programs read it."""

    def test_allowed_cpus(self):
        assert read_machine(Files()).allowed == os.sched_getaffinity(0)

    def test_online_cpus(self):
        assert len(read_machine(Files()).online) == os.sysconf("SC_NPROCESSORS_ONLN")

    def test_no_problems(self):
        files = Files()
        read_details(files, read_machine(files))
        assert files.problems() == ()

    def test_cores_as_psutil_counts_them(self):
        files = Files()
        assert len(read_cores(files, read_machine(files).online)) == (
            psutil.cpu_count(logical=False) or psutil.cpu_count()
        )

    def test_cores_sockets_and_nodes_as_lscpu_groups_them(self):
        listed = subprocess.run(
            ["lscpu", "--parse=CPU,CORE,SOCKET,NODE"], capture_output=True, text=True, check=True, timeout=60
        ).stdout
        rows = [line.split(",") for line in listed.splitlines() if not line.startswith("#")]
        core, socket, node = (
            {frozenset(int(row[0]) for row in rows if row[column] == name) for name in {row[column] for row in rows}}
            for column in (1, 2, 3)
        )
        files = Files()
        online_cpus = read_machine(files).online
        assert set(read_cores(files, online_cpus)) == core
        assert set(read_sockets(files, online_cpus).values()) == socket
        # A kernel without NUMA has no nodes; lscpu leaves the column empty then.
        assert (set(read_numa_nodes(files, online_cpus).values()) or {online_cpus}) == node

    def test_a_narrower_mask(self):
        before = os.sched_getaffinity(0)
        try:
            os.sched_setaffinity(0, {max(before)})
            machine = read_machine(Files())
        finally:
            os.sched_setaffinity(0, before)
        assert machine.allowed == {max(before)}
        assert machine.cores == (frozenset({max(before)}),)
        assert machine.online >= before

    def test_without_sched_getaffinity(self, monkeypatch):
        allowed = os.sched_getaffinity(0)
        monkeypatch.delattr(os, "sched_getaffinity")
        assert read_machine(Files()).allowed == allowed

    def test_a_sandbox_that_refuses_the_affinity_call(self, monkeypatch):
        """The status file says the same; the refusal costs one warning."""
        allowed = os.sched_getaffinity(0)

        def refuse(pid):
            raise PermissionError(1, "Operation not permitted")

        monkeypatch.setattr(os, "sched_getaffinity", refuse)
        files = Files()
        assert read_machine(files).allowed == allowed
        assert [problem.message for problem in files.problems()] == [
            "ignored sched_getaffinity(2): Operation not permitted"
        ]


class TestWithoutKernelFiles:
    """On macOS and Windows the counts come from psutil and the model from py-cpuinfo."""

    @pytest.fixture(autouse=True)
    def _no_affinity(self, monkeypatch):
        monkeypatch.delattr(os, "sched_getaffinity")

    def test_counts_of_the_real_psutil(self):
        machine = read_machine(NoKernelFiles())
        assert len(machine.online) == len(machine.allowed) == psutil.cpu_count()
        assert len(machine.cores) == (psutil.cpu_count(logical=False) or psutil.cpu_count())

    @pytest.mark.parametrize(
        ("logical", "physical", "wanted"),
        [
            (8, 4, ["0-1", "2-3", "4-5", "6-7"]),
            (8, 8, ["0", "1", "2", "3", "4", "5", "6", "7"]),
            (6, 4, ["0", "1-2", "3", "4-5"]),
            (4, None, ["0", "1", "2", "3"]),
            (2, 4, ["0", "1"]),  # more cores than CPUs cannot be
            (1, 1, ["0"]),
        ],
    )
    def test_cores(self, monkeypatch, logical, physical, wanted):
        monkeypatch.setattr(psutil, "cpu_count", lambda logical=True, counts=(physical, logical): counts[logical])
        machine = read_machine(NoKernelFiles())
        assert set(machine.cores) == sets(*wanted)
        assert frozenset().union(*machine.cores) == machine.allowed == machine.online

    def test_counts_that_nobody_knows(self, monkeypatch):
        monkeypatch.setattr(psutil, "cpu_count", lambda logical=True: None)
        monkeypatch.setattr(os, "cpu_count", lambda: None)
        assert read_machine(NoKernelFiles()) == Machine(cpus("0"), cpus("0"), (cpus("0"),))

    def test_model_of_the_real_py_cpuinfo(self):
        shown = subprocess.run(
            [sys.executable, "-m", "cpuinfo", "--json"], capture_output=True, text=True, check=True, timeout=120
        ).stdout
        info = json.loads(shown)
        files = NoKernelFiles()
        details = read_details(files, read_machine(files))
        assert details.model == info["brand_raw"]
        assert ("AVX2" in details.instruction_sets) == ("avx2" in info["flags"])
        assert (len(details.sockets), details.numa_nodes, len(details.cpu_kinds)) == (1, {}, 1)


class TestLinuxWithoutKernelFiles:
    """In a jail without /proc and /sys the affinity mask is still the truth."""

    def test_mask(self):
        before = os.sched_getaffinity(0)
        try:
            os.sched_setaffinity(0, {max(before)})
            machine = read_machine(NoKernelFiles())
        finally:
            os.sched_setaffinity(0, before)
        assert machine.allowed == {max(before)}
        assert machine.cores == (frozenset({max(before)}),)

    def test_psutil_cannot_count_there(self, monkeypatch):
        def cpu_count(logical=True):
            raise FileNotFoundError(2, "No such file or directory", "/proc/cpuinfo")

        monkeypatch.setattr(psutil, "cpu_count", cpu_count)
        assert read_machine(NoKernelFiles()).allowed == os.sched_getaffinity(0)
