from __future__ import annotations

import pytest
from trees import CPU, NODE, bitmap, collapse, cores, expand, nodes, online, per_cpu, smt, sockets

from tflaunch.topology import (
    CpuKind,
    read_cores,
    read_cpu_kinds,
    read_numa_nodes,
    read_offline,
    read_online,
    read_sockets,
)


def cpus(cpulist):
    return frozenset(expand(cpulist))


def sets(*cpulists):
    return {cpus(cpulist) for cpulist in cpulists}


def ids(packages, core_ids):
    """Package and core id of CPU 0, 1, ... and no list of siblings."""
    files = {}
    for cpu, (package, core) in enumerate(zip(packages, core_ids, strict=True)):
        files[f"{CPU}/cpu{cpu}/topology/physical_package_id"] = f"{package}\n"
        files[f"{CPU}/cpu{cpu}/topology/core_id"] = f"{core}\n"
    return files


class TestOnline:
    """The kernel's list counts; without it the directories with their own flag; without those /proc/cpuinfo."""

    def test_list(self, tree):
        assert read_online(tree(online("0-3,8-11", "4-7"))) == cpus("0-3,8-11")

    def test_the_list_wins_over_directories_and_cpuinfo(self, tree):
        files = online("2") | per_cpu("online", {"0-3": 1}) | {"/proc/cpuinfo": "processor : 0\n\nprocessor : 9\n"}
        assert read_online(tree(files)) == cpus("2")

    def test_directories_with_their_flag(self, tree):
        # CPU 0 often has no flag, because it cannot be switched off.
        files = cores("0", "1", "12") | per_cpu("online", {"1": 1, "2": 0, "12": 1})
        assert read_online(tree(files)) == cpus("0-1,12")

    def test_other_directories_are_no_cpus(self, tree):
        names = ["cpufreq", "cpuidle", "cpu", "cpux", "cpu1x", "cpu-1", "cpu99999999", "xcpu3", "power"]
        files = {f"{CPU}/{name}/online": "1\n" for name in names} | {f"{CPU}/cpu5/online": "1\n"}
        assert read_online(tree(files)) == cpus("5")

    def test_cpuinfo(self, tree):
        assert read_online(tree({"/proc/cpuinfo": "processor : 0\n\nprocessor : 3\n"})) == cpus("0,3")

    @pytest.mark.parametrize("text", ["", "\n", "all\n", "3-1\n", "0-99999999\n"], ids=repr)
    def test_a_list_that_says_nothing(self, tree, text):
        assert read_online(tree({f"{CPU}/online": text} | cores("0", "1"))) == cpus("0-1")

    def test_a_malformed_list_costs_one_warning(self, tree):
        files = tree({f"{CPU}/online": "0-x\n"} | cores("0"))
        read_online(files)
        (problem,) = files.problems()
        assert problem.code == "malformed_file"
        assert problem.message == f"ignored {CPU}/online: not a list of CPUs: '0-x'"

    def test_nothing(self, tree):
        files = tree({})
        assert read_online(files) == frozenset()
        assert files.problems() == ()

    def test_offline(self, tree):
        assert read_offline(tree(online("0-3", "4-7,12"))) == cpus("4-7,12")

    @pytest.mark.parametrize("text", ["", "\n", "none\n"], ids=repr)
    def test_no_offline_cpus(self, tree, text):
        assert read_offline(tree({f"{CPU}/offline": text})) == frozenset()

    def test_no_list_of_offline_cpus(self, tree):
        assert read_offline(tree({})) == frozenset()


class TestCores:
    """The allowed CPUs are grouped by the siblings that the kernel lists."""

    @pytest.mark.parametrize(
        ("siblings", "allowed", "wanted"),
        [
            (smt(4, 1), "0-3", {"0", "1", "2", "3"}),
            (smt(2, 2), "0-3", {"0-1", "2-3"}),
            (smt(2, 2, split=True), "0-3", {"0,2", "1,3"}),
            (smt(2, 4), "0-7", {"0-3", "4-7"}),
            (smt(2, 4, split=True), "0-7", {"0,2,4,6", "1,3,5,7"}),
            (smt(2, 8), "0-15", {"0-7", "8-15"}),
            # hybrid: two cores with two threads, three with one
            (["0-1", "2-3", "4", "5", "6"], "0-6", {"0-1", "2-3", "4", "5", "6"}),
            # a scattered mask: four CPUs of four cores, or of two, depending on the numbering
            (smt(8, 2), "2,5,8,13", {"2", "5", "8", "13"}),
            (smt(8, 2, split=True), "3,6,11,14", {"3,11", "6,14"}),
            (smt(8, 2), "4-7", {"4-5", "6-7"}),
            # without CPU 0
            (smt(4, 2, split=True), "1-3,5", {"1,5", "2", "3"}),
            # one thread of each core
            (smt(4, 2), "1,3,5,7", {"1", "3", "5", "7"}),
            (smt(4, 2), "7", {"7"}),
            # numbers with gaps
            (["0-3", "88-91"], "0-3,88-91", {"0-3", "88-91"}),
        ],
    )
    @pytest.mark.parametrize("name", ["thread_siblings_list", "core_cpus_list"])
    def test_siblings(self, tree, siblings, allowed, wanted, name):
        files = tree(cores(*siblings, name=name))
        assert set(read_cores(files, cpus(allowed))) == sets(*wanted)
        assert files.problems() == ()

    @pytest.mark.parametrize("name", ["thread_siblings", "core_cpus"])
    def test_bitmaps_where_there_are_no_lists(self, tree, name):
        files = {
            f"{CPU}/cpu{cpu}/topology/{name}": f"{bitmap([cpu % 35, cpu % 35 + 35])}\n" for cpu in range(70)
        }  # two threads a core, 35 numbers apart: words of 32 bits are crossed
        assert set(read_cores(tree(files), cpus("0-69"))) == sets(*smt(35, 2, split=True))

    def test_core_ids_are_not_unique_over_sockets(self, tree):
        files = ids([0, 0, 1, 1], [0, 1, 0, 1]) | cores("0", "1", "2", "3")
        assert set(read_cores(tree(files), cpus("0-3"))) == sets("0", "1", "2", "3")

    def test_a_virtual_machine_with_one_core_a_socket(self, tree):
        files = ids(range(6), [0] * 6) | cores(*"012345")
        assert len(read_cores(tree(files), cpus("0-5"))) == 6

    def test_a_virtual_machine_that_hides_smt(self, tree):
        """Only what the guest's kernel says can be used."""
        assert len(read_cores(tree(ids([0] * 6, range(6)) | cores(*"012345")), cpus("0-5"))) == 6

    def test_siblings_that_are_offline(self, tree):
        """Switched-off CPUs keep a directory without topology, and others' lists may still name them."""
        files = cores("0", "1") | cores("2,6") | per_cpu("online", {"4-7": 0})
        assert set(read_cores(tree(files), cpus("0-2"))) == sets("0", "1", "2")

    def test_more_lists_than_allowed_cpus(self, tree):
        assert set(read_cores(tree(cores(*smt(64, 2, split=True))), cpus("10,74,11"))) == sets("10,74", "11")

    @pytest.mark.parametrize("count", [1024, 1025, 1152, 4096])
    def test_more_cpus_than_an_old_mask_holds(self, tree, count):
        files = tree(cores(*smt(count // 2, 2, split=True)))
        grouped = read_cores(files, cpus(f"0-{count // 2 * 2 - 1}"))
        assert len(grouped) == count // 2
        assert cpus(f"{count // 2 - 1},{count // 2 * 2 - 1}") in grouped

    @pytest.mark.parametrize(
        "lists",
        [
            {0: "0-1", 1: "1-2", 2: "2-3", 3: "0,3"},
            {0: "0-3", 1: "1", 2: "2", 3: "3"},
            {0: "0", 1: "0-1", 2: "0-3", 3: "3"},
            {0: "1", 1: "2", 2: "3", 3: "0"},  # no CPU is its own sibling
            {0: "0-3,x", 1: "", 2: "\n", 3: "0-"},
            {0: "0-65535", 1: "0-65535", 2: "0", 3: "0"},
        ],
    )
    def test_contradictions_never_lose_or_double_a_cpu(self, tree, lists):
        files = tree({f"{CPU}/cpu{cpu}/topology/thread_siblings_list": text for cpu, text in lists.items()})
        grouped = read_cores(files, cpus("0-3"))
        assert sorted(cpu for core in grouped for cpu in core) == [0, 1, 2, 3]

    def test_a_malformed_list_gives_way_to_the_bitmap(self, tree):
        lists = per_cpu("topology/core_cpus_list", {"0-1": "?"}) | per_cpu(
            "topology/thread_siblings_list", {"0-1": "1-0"}
        )
        files = tree(lists | per_cpu("topology/core_cpus", {"0-1": "3"}))
        assert set(read_cores(files, cpus("0-1"))) == sets("0-1")
        assert [problem.code for problem in files.problems()] == ["malformed_file"]


class TestCoresWithoutSiblings:
    """Without lists of siblings, package and core id say which CPUs share a core; without those each CPU is one."""

    def test_package_and_core_id(self, tree):
        files = ids([0, 0, 1, 1, 0, 0, 1, 1], [0, 1, 0, 1, 0, 1, 0, 1])
        assert set(read_cores(tree(files), cpus("0-7"))) == sets("0,4", "1,5", "2,6", "3,7")

    def test_core_id_with_gaps(self, tree):
        assert set(read_cores(tree(ids([0] * 4, [0, 9, 0, 9])), cpus("0-3"))) == sets("0,2", "1,3")

    def test_dies_number_their_cores_anew(self, tree):
        files = ids([0] * 4, [0, 0, 0, 0]) | per_cpu("topology/die_id", {"0-1": 0, "2-3": 1})
        assert set(read_cores(tree(files), cpus("0-3"))) == sets("0-1", "2-3")

    def test_an_unknown_package(self, tree):
        """-1 is no package: the CPUs that have it are not known to share anything."""
        assert set(read_cores(tree(ids([-1] * 4, [0] * 4)), cpus("0-3"))) == sets("0", "1", "2", "3")

    def test_an_unknown_package_beside_lists(self, tree):
        files = ids([-1] * 4, [0, 0, 1, 1]) | cores("0-1", "2-3")
        assert set(read_cores(tree(files), cpus("0-3"))) == sets("0-1", "2-3")

    @pytest.mark.parametrize("text", ["", "x", "-1", "0x1", "1.5", "9" * 30], ids=lambda text: ascii(text[:6]))
    def test_a_core_id_that_is_none(self, tree, text):
        assert len(read_cores(tree(ids([0] * 2, [text] * 2)), cpus("0-1"))) == 2

    @pytest.mark.parametrize(
        ("cpuinfo", "allowed", "wanted"),
        [
            pytest.param(
                "".join(f"processor : {n}\nphysical id : 0\ncore id : {n % 2}\n\n" for n in range(4)),
                *("0-3", {"0,2", "1,3"}),
                id="x86",
            ),
            pytest.param(
                "".join(f"processor : {n}\nphysical id : {n}\ncore id : 0\n\n" for n in range(3)),
                *("0-2", {"0", "1", "2"}),
                id="x86, a core id of 0 in each socket",
            ),
            pytest.param(
                "".join(f"processor : {n}\nFeatures : fp asimd\nCPU part : 0xd08\n\n" for n in range(4)),
                *("0-3", {"0", "1", "2", "3"}),
                id="arm",
            ),
            pytest.param(
                "Processor : ARMv7\nprocessor : 0\n\nprocessor : 1\n\nHardware : x\n",
                *("0-1", {"0", "1"}),
                id="old arm",
            ),
            pytest.param("Processor : ARMv6\nHardware : x\n", *("0", {"0"}), id="old arm, one core without a number"),
            pytest.param(
                "# processors : 2\nprocessor 0: version = FF\nprocessor 1: version = FF\n",
                *("0-1", {"0", "1"}),
                id="old s390",
            ),
            pytest.param(
                "processor 0: version\nprocessor 1: version\nprocessor 2: version\n\n"
                "cpu number : 0\nphysical id : 1\ncore id : 4\n\n"
                "cpu number : 1\nphysical id : 1\ncore id : 4\n\n"
                "cpu number : 2\nphysical id : 1\ncore id : 5\n",
                *("0-2", {"0-1", "2"}),
                id="s390",
            ),
            pytest.param(
                "processor : 0\ncpu : POWER9\nprocessor : 8\ncpu : POWER9\n", *("0,8", {"0", "8"}), id="power"
            ),
            pytest.param("system type : x\nprocessor : 0\n\nprocessor : 1\n", *("0-1", {"0", "1"}), id="mips"),
            pytest.param("processor : 0\nhart : 1\n\nprocessor : 1\nhart : 2\n", *("0-1", {"0", "1"}), id="risc-v"),
            pytest.param("", *("0-1", {"0", "1"}), id="empty"),
        ],
    )
    def test_cpuinfo_where_there_is_no_topology(self, tree, cpuinfo, allowed, wanted):
        files = tree({"/proc/cpuinfo": cpuinfo})
        assert set(read_cores(files, cpus(allowed))) == sets(*wanted)
        assert files.problems() == ()

    def test_no_file_at_all(self, tree):
        files = tree({})
        assert set(read_cores(files, cpus("3,5"))) == sets("3", "5")
        assert files.problems() == ()

    def test_unreadable_topology_costs_one_warning(self, tree):
        files = tree({f"{CPU}/cpu{cpu}/topology/thread_siblings_list/": "" for cpu in range(50)})
        assert len(read_cores(files, cpus("0-49"))) == 50
        (problem,) = files.problems()
        assert (problem.code, "(and 49 more)" in problem.message) == ("unreadable_file", True)


class TestSockets:
    """CPUs are counted by package; -1 and no file mean one unknown package."""

    @pytest.mark.parametrize(
        ("files", "allowed", "wanted"),
        [
            (sockets("0-3", "4-7"), "0-7", ["0-3", "4-7"]),
            (sockets("0-3", "4-7"), "4-5", ["4-5"]),
            (sockets("0,2", "1,3"), "0-3", ["0,2", "1,3"]),
            (per_cpu("topology/physical_package_id", {"0-1": 0, "2-3": 36}), "0-3", ["0-1", "2-3"]),
            (per_cpu("topology/physical_package_id", {"0-3": -1}), "0-3", ["0-3"]),
            (per_cpu("topology/physical_package_id", {"0-3": "x"}), "0-3", ["0-3"]),
            ({}, "0-3", ["0-3"]),
            (
                {
                    "/proc/cpuinfo": "".join(
                        f"processor : {n}\nphysical id : {n % 2}\ncore id : 0\n\n" for n in range(4)
                    )
                },
                "0-3",
                ["0,2", "1,3"],
            ),
        ],
        ids=["two", "inside one", "interleaved", "ids with a gap", "-1", "no number", "no file", "only cpuinfo"],
    )
    def test_sockets(self, tree, files, allowed, wanted):
        assert list(read_sockets(tree(files), cpus(allowed)).values()) == [cpus(cpulist) for cpulist in wanted]


class TestNumaNodes:
    """Nodes with allowed CPUs are named by their own ids."""

    @pytest.mark.parametrize(
        ("lists", "allowed", "wanted"),
        [
            ({0: "0-7"}, "0-7", {0: "0-7"}),
            ({0: "0-3,8-11", 1: "4-7,12-15"}, "0-15", {0: "0-3,8-11", 1: "4-7,12-15"}),
            ({0: "0-3", 1: "4-7"}, "5,6", {1: "5-6"}),
            ({0: "0-3", 1: "4-7", 2: "", 3: "", 252: ""}, "0-7", {0: "0-3", 1: "4-7"}),  # memory only
            ({0: "0-15", 8: "16-31"}, "0-31", {0: "0-15", 8: "16-31"}),
            ({2: "0", 33: "1", 72: "2"}, "0-2", {2: "0", 33: "1", 72: "2"}),
            ({n: str(n) for n in range(12)}, "0-11", {n: str(n) for n in range(12)}),
            (dict.fromkeys(range(4), "0-3"), "0-3", {0: "0-3"}),  # each claims every CPU
            ({0: "0-1", 1: "1-2"}, "0-2", {0: "0-1", 1: "2"}),
            ({0: "0-1", 1: "x", 2: "2-3"}, "0-3", {0: "0-1", 2: "2-3"}),
            ({}, "0-3", {}),
        ],
        ids=[
            "one",
            "two",
            "inside one",
            "memory only",
            "power",
            "sparse",
            "12",
            "all alike",
            "overlap",
            "damaged",
            "none",
        ],
    )
    def test_nodes(self, tree, lists, allowed, wanted):
        found = read_numa_nodes(tree(nodes(lists)), cpus(allowed))
        assert found == {node: cpus(cpulist) for node, cpulist in wanted.items()}
        assert list(found) == sorted(found)

    def test_bitmaps_where_there_are_no_lists(self, tree):
        files = {f"{NODE}/node0/cpumap": "00000000,0000000f\n", f"{NODE}/node1/cpumap": "00000001,000000f0\n"}
        assert read_numa_nodes(tree(files), cpus("0-7,32")) == {0: cpus("0-3"), 1: cpus("4-7,32")}

    def test_an_empty_list_is_not_replaced_by_the_bitmap(self, tree):
        files = nodes({0: "0-1", 1: ""}) | {f"{NODE}/node1/cpumap": "c\n"}
        assert read_numa_nodes(tree(files), cpus("0-3")) == {0: cpus("0-1")}

    def test_other_files_are_no_nodes(self, tree):
        files = nodes({0: "0-1"}) | {f"{NODE}/{name}/cpulist": "2-3" for name in ("node", "nodex", "node-1", "power")}
        assert read_numa_nodes(tree(files | {f"{NODE}/online": "0-1\n"}), cpus("0-3")) == {0: cpus("0-1")}


class TestCpuKinds:
    """CPUs of clearly different speed are of different kinds, named by their rank on the whole machine."""

    @pytest.mark.parametrize(
        ("files", "allowed", "wanted"),
        [
            pytest.param({}, "0-3", [("performance", "0-3")], id="nothing known"),
            pytest.param(
                per_cpu("cpu_capacity", {"0-3": 446, "4-7": 1024}),
                *("0-7", [("performance", "4-7"), ("efficiency", "0-3")]),
                id="arm, two kinds",
            ),
            pytest.param(
                per_cpu("cpu_capacity", {"0-3": 250, "4-6": 700, "7": 1024}),
                *("0-7", [("performance", "7"), ("middle", "4-6"), ("efficiency", "0-3")]),
                id="arm, three kinds",
            ),
            pytest.param(
                per_cpu("cpu_capacity", {"0": 200, "1": 400, "2": 700, "3": 1024}),
                *("0-3", [("performance", "3"), ("middle", "2"), ("middle-2", "1"), ("efficiency", "0")]),
                id="arm, four kinds",
            ),
            pytest.param(
                per_cpu("cpu_capacity", {"0-1": 700, "2-3": 715, "4-5": 1000, "6-7": 1024}),
                *("0-7", [("performance", "4-7"), ("efficiency", "0-3")]),
                id="arm, values a few percent apart",
            ),
            pytest.param(per_cpu("cpu_capacity", {"0-3": 1024}), "0-3", [("performance", "0-3")], id="arm, all alike"),
            pytest.param(
                per_cpu("cpu_capacity", {"0-3": 446, "4-7": 1024}),
                *("0-2", [("efficiency", "0-2")]),
                id="a mask inside the slow kind",
            ),
            pytest.param(
                per_cpu("cpu_capacity", {"0-3": 446, "4-7": 1024}),
                *("4,5", [("performance", "4-5")]),
                id="a mask inside the fast kind",
            ),
            pytest.param(
                per_cpu("cpu_capacity", {"0-3": 250, "4-6": 700, "7": 1024}),
                *("5", [("middle", "5")]),
                id="a mask inside the middle kind",
            ),
            pytest.param(
                {"/sys/devices/cpu_core/cpus": "0-3\n", "/sys/devices/cpu_atom/cpus": "4-7\n"},
                *("0-7", [("performance", "0-3"), ("efficiency", "4-7")]),
                id="hybrid x86",
            ),
            pytest.param(
                {"/sys/devices/cpu_core/cpus": "0-3\n", "/sys/devices/cpu_atom/cpus": "4-7\n"},
                *("6", [("efficiency", "6")]),
                id="hybrid x86, a mask inside the slow kind",
            ),
            pytest.param(
                {"/sys/devices/cpu_core/cpus": "0-3\n", "/sys/devices/cpu_atom/cpus": "4-7\n"}
                | per_cpu("cpufreq/cpuinfo_max_freq", {"0-1": 5_000_000, "2-3": 4_800_000, "4-7": 3_700_000}),
                *("0-7", [("performance", "0-3"), ("efficiency", "4-7")]),
                id="hybrid x86 with favoured cores",
            ),
            pytest.param(
                {"/sys/devices/cpu_core/cpus": "0-7\n"}, "0-7", [("performance", "0-7")], id="one unit is no hybrid"
            ),
            pytest.param(
                {
                    "/sys/devices/cpu_core/cpus": "0-1\n",
                    "/sys/devices/cpu_atom/cpus": "2-5\n",
                    "/sys/devices/cpu_lowpower/cpus": "6-7\n",
                },
                *("0-7", [("performance", "0-1"), ("middle", "2-5"), ("efficiency", "6-7")]),
                id="hybrid x86 with low-power cores",
            ),
            pytest.param(
                per_cpu("cpufreq/cpuinfo_max_freq", {"0-3": 1_800_000, "4-7": 2_400_000}),
                *("0-7", [("performance", "4-7"), ("efficiency", "0-3")]),
                id="maximum frequency",
            ),
            pytest.param(
                {f"{CPU}/cpufreq/policy{n}/cpuinfo_max_freq": f"{f}\n" for n, f in ((0, 1_400_000), (1, 2_000_000))},
                *("0-1", [("performance", "1"), ("efficiency", "0")]),
                id="maximum frequency, by policy",
            ),
            pytest.param(
                per_cpu("cpufreq/cpuinfo_max_freq", {"0-5": 4_700_000, "6-7": 4_900_000}),
                *("0-7", [("performance", "0-7")]),
                id="favoured cores 4 % apart",
            ),
            pytest.param(
                per_cpu("cpu_capacity", {"0-3": "x", "4-7": ""}), "0-7", [("performance", "0-7")], id="no numbers"
            ),
            pytest.param(
                per_cpu("cpu_capacity", {"0-3": 446, "4-5": 1024}),
                *("0-7", [("performance", "4-7"), ("efficiency", "0-3")]),
                id="CPUs that nothing is known of",
            ),
        ],
    )
    def test_kinds(self, tree, files, allowed, wanted):
        kinds = read_cpu_kinds(tree(files), cpus("0-7"), cpus(allowed))
        assert kinds == tuple(CpuKind(kind, cpus(cpulist)) for kind, cpulist in wanted)

    def test_kinds_of_a_damaged_hybrid_are_one(self, tree):
        files = tree({"/sys/devices/cpu_core/cpus": "0-3\n", "/sys/devices/cpu_atom/cpus": "?\n"})
        assert read_cpu_kinds(files, cpus("0-7"), cpus("0-7")) == (CpuKind("performance", cpus("0-7")),)
        assert [problem.code for problem in files.problems()] == ["malformed_file"]

    def test_no_cpu_is_lost_where_two_kinds_claim_it(self, tree):
        files = {"/sys/devices/cpu_core/cpus": "0-5\n", "/sys/devices/cpu_atom/cpus": "4-6\n"}
        kinds = read_cpu_kinds(tree(files), cpus("0-7"), cpus("0-7"))
        assert sorted({cpu for kind in kinds for cpu in kind.cpus}) == list(range(8))


def test_the_planter_writes_what_the_kernel_would():
    """The trees of these tests are right only if their builders are."""
    assert smt(2, 2) == ["0,1", "2,3"]
    assert smt(2, 2, split=True) == ["0,2", "1,3"]
    assert expand("0-2,8") == [0, 1, 2, 8]
    assert collapse({8, 0}) == "0,8"
    assert bitmap([0, 1, 33]) == "00000002,00000003"
    assert cores("0,4") == {f"{CPU}/cpu{n}/topology/thread_siblings_list": "0,4\n" for n in (0, 4)}
