"""--bind cores: which CPUs are chosen, from what, and what is done when it must not or cannot be."""

from __future__ import annotations

import errno
import os
import time

import pytest
from trees import cores, expand, nodes, online, per_cpu, smt, status

from tflaunch import launch
from tflaunch.binding import (
    Binding,
    Places,
    bind,
    choose_cpus,
    describe,
    find_busy,
    parse_cpu_times,
    read_busy,
    read_true_mask,
)
from tflaunch.decision import decide
from tflaunch.errors import TflaunchError, UsageError
from tflaunch.files import Files
from tflaunch.launch import Command, run, summary
from tflaunch.options import parse_options
from tflaunch.topology import CpuKind
from tflaunch.view import Library


def cpus(cpulist):
    return frozenset(expand(cpulist))


def places(siblings, nodes=None, kinds=None, busy=""):
    """What there is to choose from, in the lists that the kernel writes; no list of busy CPUs at all is None."""
    return Places(
        cores=tuple(cpus(core) for core in siblings),
        nodes={node: cpus(members) for node, members in (nodes or {}).items()},
        kinds=tuple(CpuKind(kind, cpus(members)) for kind, members in (kinds or {}).items()),
        busy=None if busy is None else cpus(busy),
    )


SPLIT_8 = smt(4, 2, split=True)  # 0,4 1,5 2,6 3,7
PAIRS_8 = smt(4, 2)  # 0-1 2-3 4-5 6-7
TWO_NODES = {0: "0-3,8-11", 1: "4-7,12-15"}  # of smt(8, 2, split=True): four cores each
HYBRID = ["0-1", "2-3", "4", "5", "6", "7"]
HYBRID_KINDS = {"performance": "0-3", "efficiency": "4-7"}

CHOICES = [
    # one thread a core
    pytest.param(places(smt(4, 1)), 1, "0", id="lowest"),
    pytest.param(places(smt(4, 1)), 3, "0-2", id="lowest-three"),
    pytest.param(places(smt(4, 1)), 4, "0-3", id="all"),
    # cores before siblings
    pytest.param(places(SPLIT_8), 4, "0-3", id="split-cores"),
    pytest.param(places(PAIRS_8), 4, "0,2,4,6", id="pairs-cores"),
    pytest.param(places(PAIRS_8), 2, "0,2", id="pairs-two-cores"),
    pytest.param(places(PAIRS_8), 5, "0-2,4,6", id="pairs-one-sibling"),
    pytest.param(places(SPLIT_8), 6, "0-5", id="split-two-siblings"),
    pytest.param(places(smt(2, 8)), 4, "0-1,8-9", id="smt8-evenly"),
    pytest.param(places(["0,4", "5", "2"]), 3, "0,2,5", id="one-thread-of-a-core-allowed"),
    # idle ones
    pytest.param(places(smt(4, 1), busy="0,2"), 2, "1,3", id="idle"),
    pytest.param(places(smt(4, 1), busy="0-2"), 2, "0,3", id="idle-then-busy"),
    pytest.param(places(smt(4, 1), busy="0-3"), 2, "0-1", id="all-busy"),
    pytest.param(places(smt(4, 1), busy=None), 2, "0-1", id="not-seen"),
    pytest.param(places(smt(4, 1), busy="9,77"), 2, "0-1", id="busy-ones-that-are-not-there"),
    pytest.param(places(SPLIT_8, busy="0"), 2, "1-2", id="idle-cores-before-an-idle-sibling-of-a-busy-one"),
    pytest.param(places(SPLIT_8, busy="0"), 4, "1-4", id="the-idle-sibling-stands-for-its-core"),
    pytest.param(places(SPLIT_8, busy="4"), 3, "1-3", id="a-core-with-a-busy-sibling-last"),
    pytest.param(places(SPLIT_8, busy="4"), 4, "0-3", id="a-core-with-a-busy-sibling-before-siblings"),
    pytest.param(places(SPLIT_8, busy="0-1,4-5"), 3, "0,2-3", id="a-busy-core-before-siblings"),
    pytest.param(places(smt(2, 2, split=True), busy="0,2-3"), 1, "1", id="half-a-core-before-a-busy-one"),
    # one node
    pytest.param(places(smt(8, 2, split=True), TWO_NODES), 4, "0-3", id="first-node"),
    pytest.param(places(smt(8, 2, split=True), TWO_NODES, busy="1"), 4, "4-7", id="the-idle-node"),
    pytest.param(places(smt(8, 2, split=True), TWO_NODES, busy="1"), 2, "0,2", id="idle-ones-of-the-first-node"),
    pytest.param(places(smt(8, 2, split=True), TWO_NODES), 6, "0-3,8-9", id="siblings-before-another-node"),
    pytest.param(places(smt(8, 2, split=True), TWO_NODES), 8, "0-3,8-11", id="a-whole-node"),
    pytest.param(places(["0-1", "2", "3", "4"], {0: "0-1", 1: "2-4"}), 2, "2-3", id="the-node-with-whole-cores"),
    pytest.param(places(smt(6, 1), {0: "0-1", 1: "2-5"}, busy="2-5"), 3, "2-4", id="the-only-node-that-is-enough"),
    pytest.param(places(smt(6, 1), {4: "3-5", 7: "0-2"}), 2, "0-1", id="sparse-nodes-lowest-cpus"),
    # several
    pytest.param(places(smt(8, 2, split=True), TWO_NODES), 9, "0-8", id="two-nodes-cores-first"),
    pytest.param(places(smt(9, 1), {0: "0-1", 1: "2-4", 2: "5-8"}), 7, "2-8", id="the-two-that-are-enough"),
    pytest.param(places(smt(9, 1), {0: "0-2", 1: "3-5", 2: "6-8"}, busy="0"), 6, "3-8", id="the-two-idle-ones"),
    pytest.param(places(smt(9, 1), {0: "0-2", 1: "3-5", 2: "6-8"}), 5, "0-4", id="the-two-lowest"),
    pytest.param(places(smt(6, 1), {0: "0-1", 1: "2-3", 2: "4-5"}), 5, "0-4", id="three-nodes"),
    # what the nodes do not name
    pytest.param(places(smt(4, 1), {0: "", 2: "0-3"}), 2, "0-1", id="node-of-memory-only"),
    pytest.param(places(smt(6, 1), {0: "0-1"}), 4, "2-5", id="cpus-of-no-node"),
    pytest.param(places(smt(4, 1), {0: "0-3,64-127"}), 4, "0-3", id="node-with-cpus-that-are-not-there"),
    # kinds
    pytest.param(places(HYBRID, kinds=HYBRID_KINDS), 2, "0,2", id="performance-cores"),
    pytest.param(places(HYBRID, kinds=HYBRID_KINDS), 4, "0,2,4-5", id="other-cores-before-siblings"),
    pytest.param(places(HYBRID, kinds=HYBRID_KINDS), 7, "0-2,4-7", id="a-sibling-at-last"),
    pytest.param(places(HYBRID, kinds=HYBRID_KINDS, busy="0-3"), 2, "4-5", id="idle-before-fast"),
    pytest.param(
        places(smt(8, 1), kinds={"performance": "7", "middle": "4-6", "efficiency": "0-3"}),
        5,
        "0,4-7",
        id="three-kinds",
    ),
    pytest.param(places(smt(4, 1), {0: "0-1", 1: "2-3"}, {"performance": "2-3"}), 2, "0-1", id="one-kind"),
    pytest.param(
        places(smt(4, 1), {0: "0-1", 1: "2-3"}, {"performance": "2-3", "efficiency": "0-1"}), 2, "2-3", id="fast-node"
    ),
    # numbers
    pytest.param(places(["3,67", "9,73", "40,104"]), 2, "3,9", id="sparse-ids"),
    pytest.param(places(["40", "9", "3"]), 2, "3,9", id="any-order"),
    pytest.param(places(smt(2, 1)), 5, "0-1", id="more-than-there-are"),
]


@pytest.mark.parametrize(("what", "count", "wanted"), CHOICES)
def test_choice(what, count, wanted):
    assert choose_cpus(count, what) == cpus(wanted)


class TestWords:
    """What was chosen is told as a person would see it on the machine."""

    @pytest.mark.parametrize(
        ("what", "chosen", "words"),
        [
            (places(smt(4, 1)), "0", "one CPU"),
            (places(SPLIT_8), "0-3", "4 CPUs on 4 cores"),
            (places(PAIRS_8), "0-2", "3 CPUs on 2 cores"),
            (places(smt(1, 4)), "0-1", "2 CPUs on 1 core"),
            (places(smt(4, 1), {0: "0-3"}), "0-1", "2 CPUs on 2 cores"),
            (places(smt(4, 1), {0: "0-1", 3: "2-3"}), "2-3", "2 CPUs on 2 cores, NUMA node 3"),
            (places(smt(4, 1), {0: "0-1", 3: "2-3"}), "0-2", "3 CPUs on 3 cores, NUMA nodes 0,3"),
            (places(HYBRID, kinds=HYBRID_KINDS), "0,2", "2 CPUs on 2 cores, performance CPUs"),
            (places(HYBRID, kinds=HYBRID_KINDS), "0,4", "2 CPUs on 2 cores, performance and efficiency CPUs"),
            (places(smt(4, 1), busy="0"), "1", "one CPU, 0 was busy"),
            (places(smt(4, 1), busy="0-1,99"), "2", "one CPU, 0-1 were busy"),
            (places(smt(4, 1), busy="99"), "2", "one CPU"),
            (places(smt(4, 1), busy=None), "0", "one CPU, which CPUs are busy cannot be seen"),
        ],
    )
    def test_description(self, what, chosen, words):
        assert describe(cpus(chosen), what) == words


# A kernel 6.18 with a process pinned to CPU 1, a tenth of a second apart.
RECORDED = (
    "cpu  1171477 66498 214780 1347452 36573 0 9799 28549 0 0\n"
    "cpu0 442026 28264 82754 858441 9512 0 2823 13516 0 0\n"
    "cpu1 729451 38233 132025 489010 27061 0 6976 15032 0 0\n"
    "intr 9780765 0 0 0 2 1\n"
    "ctxt 16515788\nbtime 1796039761\nprocesses 98\nprocs_running 3\n",
    "cpu  1171497 66498 214780 1347462 36573 0 9799 28549 0 0\n"
    "cpu0 442027 28264 82754 858450 9512 0 2823 13516 0 0\n"
    "cpu1 729461 38233 132025 489010 27061 0 6976 15032 0 0\n"
    "intr 9780765 0 0 0 2 1\n",
)


class TestStat:
    """The lines of the CPUs in /proc/stat, whatever else is in it."""

    def test_recorded(self):
        assert parse_cpu_times(RECORDED[0]) == {
            0: (442026 + 28264 + 82754 + 2823 + 13516, 858441 + 9512),
            1: (729451 + 38233 + 132025 + 6976 + 15032, 489010 + 27061),
        }

    def test_guests_are_counted_once(self):
        assert parse_cpu_times("cpu7 100 20 3 1000 1 2 3 4 90 10\n") == {7: (132, 1001)}

    @pytest.mark.parametrize(
        ("line", "times"),
        [
            ("cpu3 1 2 3 4 5", {3: (6, 9)}),
            ("cpu3 1 2 3 4 5 6 7 8 9 10 11 12", {3: (27, 9)}),
            ("cpu3 18446744073709551615 0 0 0 0", {3: (18446744073709551615, 0)}),
            ("cpu65535 0 0 0 0 0", {65535: (0, 0)}),
        ],
    )
    def test_other_lengths_and_large_numbers(self, line, times):
        assert parse_cpu_times(f"{line}\n") == times
        assert parse_cpu_times(line) == times

    @pytest.mark.parametrize(
        "line",
        [
            "",
            "cpu",
            "cpu 1 2 3 4 5 6 7 8",
            "cpu3",
            "cpu3 1 2 3 4",
            "cpu3 1 2 3 four 5",
            "cpu3 1 2 -3 4 5",
            "cpu3 1 2 +3 4 5",
            "cpu3 1 2 3.0 4 5",
            "cpu3 1 2 ٣ 4 5",
            "cpu3 1 2 3  4 5",
            "cpu3 1 2 3 4 5 6 7 x",
            "cpu3\t1\t2\t3\t4\t5",
            f"cpu3 1 2 {'9' * 21} 4 5",
            f"cpu3 1 2 {'9' * 5000} 4 5",
            "cpu65536 1 2 3 4 5",
            f"cpu{'9' * 30} 1 2 3 4 5",
            "cpu-3 1 2 3 4 5",
            "cpu٣ 1 2 3 4 5",
            "cpu3: 1 2 3 4 5",
            " cpu3 1 2 3 4 5",
            "xcpu3 1 2 3 4 5",
            "CPU3 1 2 3 4 5",
            "cpu3 1 2 3 4 5\udcff",
            "\0\0\0",
            "intr 1 2 3 4 5 6",
        ],
        ids=lambda text: ascii(text[:30]),
    )
    def test_a_line_that_is_none_is_left_out(self, line):
        good = "cpu8 1 2 3 4 5 6 7 8"
        assert parse_cpu_times(f"{line}\n{good}\n{line}\n") == {8: (27, 9)}

    def test_huge(self, deadline):
        assert parse_cpu_times("intr" + " 0" * 4_000_000 + "\ncpu1 0 0 0 1 0\n") == {1: (0, 1)}


class TestBusy:
    """A CPU that worked for more than half of the time is taken."""

    @pytest.mark.parametrize(
        ("busy", "idle", "is_busy"),
        [
            (0, 10, False),
            (4, 6, False),
            (5, 5, False),
            (6, 5, True),
            (10, 0, True),
            (0, 0, False),
            # iowait goes backwards now and then, and counters of a virtual machine that moved may too
            (3, -2, True),
            (0, -2, False),
            (-5, -9, False),
            (-5, 10, False),
        ],
    )
    def test_half(self, busy, idle, is_busy):
        before, after = {4: (1000, 2000)}, {4: (1000 + busy, 2000 + idle)}
        assert find_busy(before, after) == (cpus("4") if is_busy else frozenset())

    def test_a_cpu_that_came_or_went_is_not_known(self):
        assert find_busy({1: (0, 0), 2: (0, 0)}, {2: (9, 0), 3: (9, 0)}) == cpus("2")

    @pytest.fixture
    def stat(self, monkeypatch):
        """This machine's /proc/stat has these texts, one after the other; returns how long was waited."""
        waits = []
        monkeypatch.setattr(time, "sleep", waits.append)

        def make(*texts):
            left = list(texts)
            monkeypatch.setattr(Files, "read", lambda self, path: left.pop(0) if path == "/proc/stat" else None)
            return waits

        return make

    def test_recorded(self, stat):
        waits = stat(*RECORDED)
        assert read_busy(Files()) == cpus("1")
        assert waits == [pytest.approx(0.1)]

    @pytest.mark.parametrize("text", [None, "", "garbage\n", "cpu  1 2 3 4 5 6 7 8\n"], ids=repr)
    def test_nothing_to_be_seen_costs_no_time(self, stat, text):
        waits = stat(text)
        assert read_busy(Files()) is None
        assert waits == []

    @pytest.mark.parametrize("text", [None, "garbage\n"], ids=repr)
    def test_gone_the_second_time(self, stat, text):
        stat(RECORDED[0], text)
        assert read_busy(Files()) == frozenset()

    def test_another_machine_is_not_watched(self, tree, monkeypatch):
        monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail("waited"))
        assert read_busy(tree({"/proc/stat": RECORDED[0]})) is None

    def test_this_machine(self):
        """Whichever are busy, they are CPUs that the kernel has."""
        there = {name for name in os.listdir("/sys/devices/system/cpu") if name[3:].isdigit()}
        assert {f"cpu{cpu}" for cpu in read_busy(Files())} <= there

    def test_an_unreadable_file_is_no_problem(self, monkeypatch):
        def refuse(path, flags):
            raise PermissionError(errno.EACCES, "Permission denied")

        files = Files()
        monkeypatch.setattr(os, "open", refuse)
        assert read_busy(files) is None
        assert files.problems() == ()


def machine(siblings, allowed, *, cpu_max="max 100000", present=None, isolated=None, more=()):
    """The files of a machine with these cores, in a v2 group with this cpu.max."""
    return {
        **cores(*siblings),
        **online(present or ",".join(siblings)),
        **status(allowed),
        **({} if isolated is None else {"/sys/devices/system/cpu/isolated": f"{isolated}\n"}),
        "/proc/self/cgroup": "0::/pod\n",
        "/proc/self/mountinfo": "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
        "/sys/fs/cgroup/cgroup.controllers": "cpuset cpu\n",
        "/sys/fs/cgroup/pod/cpu.max": f"{cpu_max}\n",
        **dict(more),
    }


def decided(files, environ=None, **said):
    said = {"bind": "cores", **said}
    return decide(files, parse_options(said, environ or {}), environ or {})


class TestDecision:
    """The facts of a machine to what its program is bound to."""

    def test_not_asked_for(self, tree):
        files = tree(machine(PAIRS_8, "0-7"))
        assert decided(files, bind="none", cpus="2").binding is None
        assert decide(files, parse_options({}, {}), {}).binding is None

    def test_cores(self, tree):
        binding = decided(tree(machine(PAIRS_8, "0-7")), cpus="3").binding
        assert binding.cpus == cpus("0,2,4")
        assert binding.reason == (
            "the limit of 3 CPUs as whole CPUs, rounded up; 3 CPUs on 3 cores, which CPUs are busy cannot be seen"
        )

    def test_variable(self, tree):
        environ = {"TFLAUNCH_BIND": "cores", "TFLAUNCH_CPUS": "2"}
        assert decide(tree(machine(PAIRS_8, "0-7")), parse_options({}, environ), environ).binding.cpus == cpus("0,2")

    @pytest.mark.parametrize(("limit", "chosen"), [("0.2", "0"), ("1", "0"), ("1.2", "0,2"), ("2.5", "0,2,4")])
    def test_a_fraction_is_rounded_up(self, tree, limit, chosen):
        assert decided(tree(machine(PAIRS_8, "0-7")), cpus=limit).binding.cpus == cpus(chosen)

    def test_only_allowed_cpus(self, tree):
        assert decided(tree(machine(SPLIT_8, "2-3,6-7")), cpus="2").binding.cpus == cpus("2-3")
        assert decided(tree(machine(SPLIT_8, "2,6-7")), cpus="2").binding.cpus == cpus("2,7")

    @pytest.mark.parametrize("said", [{}, {"cpus": "8"}, {"cpus": "7.1"}, {"cpus": "64"}])
    def test_nothing_to_bind(self, tree, said):
        decision = decided(tree(machine(PAIRS_8, "0-7")), **said)
        assert decision.binding == Binding(frozenset(), "nothing to bind: the plan uses all allowed CPUs")
        assert "bind" not in " ".join(problem.message for problem in decision.problems)

    def test_a_node(self, tree):
        files = machine(smt(8, 2, split=True), "0-15", more=nodes({0: "0-3,8-11", 1: "4-7,12-15", 2: ""}).items())
        binding = decided(tree(files), cpus="6").binding
        assert binding.cpus == cpus("0-3,8-9")
        assert "6 CPUs on 4 cores, NUMA node 0" in binding.reason

    def test_the_node_that_the_mask_leaves_room_on(self, tree):
        files = machine(smt(8, 2, split=True), "2-7,10-15", more=nodes(TWO_NODES).items())
        assert decided(tree(files), cpus="4").binding.cpus == cpus("4-7")

    def test_fast_ones(self, tree):
        files = machine(smt(8, 1), "0-7", more=per_cpu("cpu_capacity", {"0-3": 446, "4-7": 1024}).items())
        binding = decided(tree(files), cpus="5").binding
        assert binding.cpus == cpus("0,4-7")
        assert "performance and efficiency CPUs" in binding.reason

    def test_offline_cpus_are_left_out(self, tree):
        files = tree(machine(smt(4, 1), "0-7", present="0-3"))
        assert decided(files, cpus="2").binding.cpus == cpus("0-1")
        files = tree(machine(smt(8, 1), "0-7", present="4-7"))
        assert decided(files, cpus="2").binding.cpus == cpus("4-5")

    def test_online_cpus_that_are_made_up(self, tree):
        """lxcfs shows a container CPUs 0 and 1 where its mask has others."""
        assert decided(tree(machine(smt(8, 1), "4-7", present="0-1")), cpus="2").binding.cpus == cpus("4-5")
        assert decided(tree(machine(smt(8, 1), "1-4", present="0-1")), cpus="2").binding.cpus == cpus("1-2")

    def test_isolated_cpus_are_taken_last(self, tree):
        files = tree(machine(smt(4, 1), "0-3", isolated="0-1"))
        assert decided(files, cpus="2").binding.cpus == cpus("2-3")
        assert decided(files, cpus="3").binding.cpus == cpus("0-2")

    @pytest.mark.parametrize("said", [{"cpus": "2"}, {"cpus": "3.5", "mode": "latency"}, {"cpus": "5", "omp": "7"}])
    def test_the_plan_is_the_same(self, tree, said):
        files = tree(machine(smt(8, 2), "0-15", more=nodes({0: "0-9", 1: "10-15"}).items()))
        decision = decided(files, **said)
        assert decision.plan == decided(files, bind="none", **said).plan
        assert len(decision.binding.cpus) == decision.plan.python_cpu_count.value
        assert decision.machine.allowed == cpus("0-15")

    def test_siblings_are_no_cores(self, tree):
        """Six CPUs of one node have four cores, and a thread more than there are cores splits the same units."""
        files = tree(machine(smt(8, 2, split=True), "0-15", more=nodes(TWO_NODES).items()))
        assert decided(files, bind="none", cpus="6").plan.intra_op.value == 6
        decision = decided(files, cpus="6")
        assert decision.binding.cpus == cpus("0-3,8-9")
        assert (decision.plan.intra_op.value, decision.plan.omp.value) == (4, 4)
        assert decision.plan.python_cpu_count.value == 6
        assert "4 physical cores" in decision.plan.intra_op.reason

    def test_threads_are_cut_to_the_cpus_that_are_bound(self, tree):
        decision = decided(tree(machine(smt(8, 1), "0-7")), cpus="2", intra_op="4")
        assert decision.plan.intra_op.value == 2
        assert [problem.code for problem in decision.problems] == ["intra_op_above_allowed"]

    def test_strict(self, tree):
        files = machine(smt(4, 1), "0-3", more={"/sys/devices/system/node/node0/cpulist": "x\n"}.items())
        assert decided(tree(files), cpus="2").binding.cpus == cpus("0-1")
        with pytest.raises(TflaunchError, match="node0"):
            decided(tree(files), cpus="2", strict="1")


class TestQuota:
    """Under a quota without a cpuset all containers of a host would take the same CPUs, so that is refused."""

    @pytest.mark.parametrize(
        ("said", "environ", "first"),
        [({}, {}, "--bind cores "), ({"bind": "none"}, {"TFLAUNCH_BIND": "cores"}, "TFLAUNCH_BIND=cores ")],
        ids=["option", "variable"],
    )
    def test_refused(self, tree, said, environ, first):
        files = tree(machine(PAIRS_8, "0-7", cpu_max="150000 100000"))
        options = parse_options({} if environ else {"bind": "cores"}, environ)
        with pytest.raises(UsageError) as caught:
            decide(files, options, environ)
        assert caught.value.exit_status == 2
        assert caught.value.what.startswith(first)
        for words in ("quota of 1.5 CPUs", "without a cpuset", "every container", "8 CPUs"):
            assert words in caught.value.what
        assert "--bind-anyway" in caught.value.hint
        assert "cpuset" in caught.value.hint

    @pytest.mark.parametrize(
        ("quota", "allowed", "more", "chosen"),
        [
            pytest.param("150000 100000", "0-7", {}, None, id="every CPU"),
            pytest.param("699999 100000", "0-7", {}, None, id="just below"),
            pytest.param("150000 100000", "0-7", {"present": "0-3"}, None, id="more than those online"),
            pytest.param("150000 100000", "0-5", {"isolated": "6-7"}, None, id="all that are not isolated"),
            pytest.param("150000 100000", "0-5", {}, "0,2", id="own cpuset"),
            pytest.param("150000 100000", "2-3", {}, "", id="own cpuset, all of it"),
            pytest.param("150000 100000", "2-5", {"present": "0-3"}, "2-3", id="own cpuset beside made-up CPUs"),
            pytest.param("max 100000", "0-7", {}, "", id="no quota"),
            pytest.param("800000 100000", "0-7", {}, "", id="quota not below"),
            pytest.param("750000 100000", "0-7", {}, "", id="quota that needs all"),
        ],
    )
    def test_where(self, tree, quota, allowed, more, chosen):
        files = tree(machine(PAIRS_8, allowed, cpu_max=quota, **more))
        if chosen is None:
            with pytest.raises(UsageError):
                decided(files)
        else:
            assert decided(files).binding.cpus == cpus(chosen)

    def test_what_the_user_says_changes_nothing(self, tree):
        files = tree(machine(PAIRS_8, "0-7", cpu_max="150000 100000"))
        with pytest.raises(UsageError):
            decided(files, cpus="1")

    @pytest.mark.parametrize("how", ["option", "variable"])
    def test_anyway(self, tree, how):
        files = tree(machine(PAIRS_8, "0-7", cpu_max="150000 100000"))
        by_option, by_variable = decided(files, bind_anyway="1"), decided(files, {"TFLAUNCH_BIND_ANYWAY": "1"})
        decision = by_option if how == "option" else by_variable
        assert decision.binding.cpus == cpus("0,2")
        assert decision.problems == ()

    def test_switched_off(self, tree):
        with pytest.raises(UsageError):
            decided(tree(machine(PAIRS_8, "0-7", cpu_max="150000 100000")), {"TFLAUNCH_BIND_ANYWAY": "0"})

    def test_anyway_alone_binds_nothing(self, tree):
        files = tree(machine(PAIRS_8, "0-7", cpu_max="150000 100000"))
        assert decide(files, parse_options({"bind_anyway": "1"}, {}), {}).binding is None


class TestView:
    """The view is for the mask that the program will have."""

    def test_auto(self, tree):
        decision = decided(tree(machine(PAIRS_8, "0-7")), cpus="2")
        assert decision.view.cpus is None
        assert "bound" in decision.view.reason
        assert decision.view_changes == ()
        assert not [problem for problem in decision.problems if problem.code == "view_unavailable"]

    def test_without_binding_it_would_be_needed(self, tree):
        decision = decided(tree(machine(PAIRS_8, "0-7")), bind="none", cpus="2")
        assert decision.view.cpus == 2 or decision.view.library.problem
        assert "bound" not in decision.view.reason

    def test_nothing_to_bind(self, tree):
        assert "bound" not in decided(tree(machine(PAIRS_8, "0-7"))).view.reason

    def test_off(self, tree):
        decision = decided(tree(machine(PAIRS_8, "0-7")), cpus="2", view="off")
        assert (decision.view.cpus, decision.view.reason) == (None, "--view off")


class TestSummary:
    """The line on start says what the program is bound to."""

    def test_bound(self, tree):
        files = tree(machine(PAIRS_8, "0-7"))
        assert summary(decided(files, cpus="2")).endswith("intra-op 2, inter-op 2, OMP 2, bound to 0,2")
        assert summary(decided(files, cpus="7")).endswith(", bound to 0-6")

    def test_nothing_to_bind(self, tree):
        assert summary(decided(tree(machine(PAIRS_8, "0-7")))).endswith(", nothing to bind")

    def test_not_asked_for(self, tree):
        assert "bind" not in summary(decided(tree(machine(PAIRS_8, "0-7")), bind="none", cpus="8"))


class Kernel:
    """Stands for the calls of sched_setaffinity(2), so that no test binds the process of the tests."""

    def __init__(self, mask, working=None, error=None):
        self.mask, self.working, self.error, self.calls = cpus(mask), working, error, []

    def get(self, pid):
        assert pid == 0
        return set(self.mask)

    def set(self, pid, mask):
        assert pid == 0
        self.calls.append(frozenset(mask))
        if self.error is not None:
            raise OSError(self.error, os.strerror(self.error))
        self.mask = frozenset(mask) if self.working is None else frozenset(mask) & cpus(self.working)


@pytest.fixture
def kernel(monkeypatch):
    def make(*arguments, **keywords):
        kernel = Kernel(*arguments, **keywords)
        monkeypatch.setattr(os, "sched_getaffinity", kernel.get)
        monkeypatch.setattr(os, "sched_setaffinity", kernel.set)
        monkeypatch.setattr("tflaunch.binding.read_true_mask", lambda files: kernel.mask)
        return kernel

    return make


class TestBind:
    """The call itself, and what is left when it fails."""

    def test_bound(self, kernel):
        fake = kernel("0-7")
        assert bind(cpus("2,4")) is None
        assert fake.mask == cpus("2,4")

    @pytest.mark.parametrize("number", [errno.EPERM, errno.ENOSYS, errno.EINVAL])
    def test_refused(self, kernel, number):
        fake = kernel("0-7", error=number)
        assert bind(cpus("2,4")) == os.strerror(number)
        assert fake.mask == cpus("0-7")

    def test_a_cpu_that_went_away(self, kernel):
        """The kernel leaves it out without an error; the mask is as it was then."""
        fake = kernel("0-7", working="0-3,5-7")
        assert bind(cpus("2,4")) == "CPU 4 cannot be used"
        assert fake.mask == cpus("0-3,5-7")

    def test_inside_a_view_that_cannot_be_passed(self, kernel, monkeypatch):
        """An outer view takes it for all CPUs, and from the other process a sandbox refuses it."""
        fake = kernel("0-7")
        monkeypatch.setattr(os, "sched_setaffinity", lambda process, mask: None)
        monkeypatch.setattr(os, "fork", lambda: 1)
        monkeypatch.setattr(os, "waitpid", lambda process, options: (1, 0))
        assert bind(cpus("2,4")) == "the view of an outer tflaunch hinders it"
        assert fake.mask == cpus("0-7")

    def test_a_system_without_the_call(self, monkeypatch):
        monkeypatch.delattr(os, "sched_setaffinity")
        assert bind(cpus("0")) == "this system binds no processes"

    @pytest.mark.parametrize(
        ("text", "mask"),
        [
            ("Name:\tpython\nCpus_allowed:\tff\nCpus_allowed_list:\t0-3,8\nMems_allowed:\t1\n", "0-3,8"),
            ("Cpus_allowed_list:\t3-1\n", ""),
            ("Name:\tpython\n", ""),
        ],
    )
    def test_the_mask_that_the_kernel_shows(self, tree, text, mask):
        assert read_true_mask(tree({"/proc/self/status": text})) == cpus(mask)

    def test_no_file_has_it(self, tree):
        assert read_true_mask(tree({})) == frozenset()


class Replaced(BaseException):
    """Stands for the moment at which the kernel puts the program in the place of this process."""


class TestRun:
    """`run` binds before the exec; what cannot be bound starts as without --bind, with one warning."""

    @pytest.fixture
    def start(self, monkeypatch, tmp_path, tree):
        """Run with these options on a machine of four cores; returns the environment that the program got."""
        planted = tree(machine(smt(4, 1), "0-3"))
        script = tmp_path / "script.py"
        script.write_text("")
        monkeypatch.setattr(launch, "Files", lambda: planted)
        monkeypatch.setattr("tflaunch.view.find_library", lambda: Library("/opt/libtflaunch_view.so"))
        for name in ("OMP_PROC_BIND", "KMP_AFFINITY"):
            monkeypatch.delenv(name, raising=False)

        def start(**said):
            environs = []

            def execve(path, argv, environ):
                environs.append(environ)
                raise Replaced

            monkeypatch.setattr(os, "execve", execve)
            with pytest.raises(Replaced):
                run(Command("script", str(script), []), parse_options({"bind": "cores", **said}, {}))
            return environs[0]

        return start

    def test_bound(self, start, kernel, capsys):
        fake = kernel("0-3")
        environ = start(cpus="2")
        assert fake.mask == cpus("0-1")
        assert environ["OMP_PROC_BIND"] == "false"
        assert "TFLAUNCH_VIEW_CPUS" not in environ
        (line,) = capsys.readouterr().err.splitlines()
        assert line.endswith(", bound to 0-1")

    def test_verbose_gives_the_reason(self, start, kernel, capsys):
        kernel("0-3")
        start(cpus="2", verbose="1")
        (line,) = (line for line in capsys.readouterr().err.splitlines() if line.startswith("tflaunch: bind "))
        assert line.startswith("tflaunch: bind 0-1: the limit of 2 CPUs")

    def test_nothing_to_bind(self, start, kernel, capsys):
        fake = kernel("0-3")
        assert start(verbose="1")["OMP_PROC_BIND"] == "false"
        assert fake.calls == []
        assert "tflaunch: nothing to bind: the plan uses all allowed CPUs" in capsys.readouterr().err.splitlines()

    def test_refused(self, start, kernel, monkeypatch, capsys):
        monkeypatch.setenv("KMP_AFFINITY", "none")
        kernel("0-3", error=errno.EPERM)
        environ = start(cpus="2")
        assert "OMP_PROC_BIND" not in environ
        assert environ["KMP_AFFINITY"] == "none"
        assert (environ["OMP_NUM_THREADS"], environ["PYTHON_CPU_COUNT"]) == ("2", "2")
        assert environ["TFLAUNCH_VIEW_CPUS"] == "2"
        first, warning = capsys.readouterr().err.splitlines()
        assert "bound" not in first
        assert warning == "tflaunch: warning: not bound to 0-1: Operation not permitted"

    def test_refused_with_strict(self, start, kernel):
        kernel("0-3", error=errno.EPERM)
        with pytest.raises(TflaunchError, match="Operation not permitted") as caught:
            start(cpus="2", strict="1")
        assert caught.value.exit_status == 125
        assert "--strict" in caught.value.what

    def test_quiet(self, start, kernel, capsys):
        kernel("0-3", error=errno.EPERM)
        start(cpus="2", quiet="1")
        assert capsys.readouterr().err == ""

    def test_dry_run_binds_nothing(self, kernel, monkeypatch, tree, capsys):
        fake = kernel("0-3")
        monkeypatch.setattr(launch, "Files", lambda: tree(machine(smt(4, 1), "0-3")))
        options = parse_options({"bind": "cores", "cpus": "2", "dry_run": "1"}, {})
        assert run(Command("program", "ls", ["-l"]), options) == 0
        assert fake.calls == []
        lines = capsys.readouterr().out.splitlines()
        assert lines[0].startswith("# bind: the limit of 2 CPUs")
        assert lines[-1] == "exec taskset -c 0-1 ls -l"

    def test_dry_run_with_nothing_to_bind(self, kernel, monkeypatch, tree, capsys):
        kernel("0-3")
        monkeypatch.setattr(launch, "Files", lambda: tree(machine(smt(4, 1), "0-3")))
        run(Command("program", "ls", ["-l"]), parse_options({"bind": "cores", "dry_run": "1"}, {}))
        lines = capsys.readouterr().out.splitlines()
        assert lines[0] == "# bind: nothing to bind: the plan uses all allowed CPUs"
        assert lines[-1] == "exec ls -l"
