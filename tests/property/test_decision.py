"""Any bytes in any file of a machine: there is always a decision, and it is within bounds."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from tflaunch.decision import decide
from tflaunch.document import make_document
from tflaunch.environment import VARIABLES
from tflaunch.errors import UsageError
from tflaunch.files import Files
from tflaunch.machine import read_details
from tflaunch.options import OPTIONS, Options, parse_options

EXAMPLES = settings(deadline=None, max_examples=150)

CPU = "sys/devices/system/cpu"
# Four CPUs on two cores, of two kinds, in a cgroup of both versions: a file for every reader.
TREE = {
    f"{CPU}/online": b"0-3\n",
    f"{CPU}/offline": b"4-7\n",
    **{f"{CPU}/cpu{n}/online": b"1\n" for n in (1, 2, 3)},
    **{f"{CPU}/cpu{n}/topology/core_cpus_list": b"0-1\n" if n < 2 else b"2-3\n" for n in range(4)},
    **{f"{CPU}/cpu{n}/topology/thread_siblings": b"00000003\n" if n < 2 else b"0000000c\n" for n in range(4)},
    **{f"{CPU}/cpu{n}/topology/core_id": b"%d\n" % (n // 2) for n in range(4)},
    **{f"{CPU}/cpu{n}/topology/physical_package_id": b"0\n" for n in range(4)},
    **{f"{CPU}/cpu{n}/cpu_capacity": b"1024\n" if n < 2 else b"446\n" for n in range(4)},
    **{f"{CPU}/cpu{n}/cpufreq/cpuinfo_max_freq": b"3000000\n" if n < 2 else b"2000000\n" for n in range(4)},
    "sys/devices/cpu_core/cpus": b"0-1\n",
    "sys/devices/cpu_atom/cpus": b"2-3\n",
    "sys/devices/system/node/node0/cpulist": b"0-1\n",
    "sys/devices/system/node/node1/cpumap": b"0000000c\n",
    "proc/cpuinfo": b"processor\t: 0\nphysical id\t: 0\ncore id\t\t: 0\nmodel name\t: Some CPU\nflags\t: avx2\n",
    "proc/self/status": b"Name:\tpython\nCpus_allowed_list:\t0-3\n",
    "proc/self/cgroup": b"5:cpu,cpuacct:/jobs/one\n0::/jobs/one\n",
    "proc/self/mountinfo": b"31 24 0:27 / /sys/fs/cgroup/cpu rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
    b"32 24 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
    "sys/fs/cgroup/cpu/jobs/one/cpu.cfs_quota_us": b"150000\n",
    "sys/fs/cgroup/cpu/jobs/one/cpu.cfs_period_us": b"100000\n",
    "sys/fs/cgroup/unified/jobs/one/cpu.max": b"150000 100000\n",
    "sys/fs/cgroup/unified/cgroup.controllers": b"cpu memory\n",
}
PIECES = st.sampled_from(
    [
        *[
            b"0",
            b"1-2",
            b"0-3",
            b"63",
            b"-1",
            b"max",
            b"100000",
            b"99999999999999999999",
            b"cpu",
            b"cgroup",
            b"cgroup2",
        ],
        *[b"0::/", b"/..", b"\\040", b"\\", b" - ", b"\n", b" ", b"\t", b",", b":", b"\0", b"\xff\xfe", b"\xd9\xa3"],
        *[b"Cpus_allowed_list:", b"processor", b"physical id", b"rw,cpu", b"\x1b[2J"],
    ]
)


# Of these there is at most one warning each, however many files are damaged.
FILE_PROBLEMS = ("unreadable_file", "malformed_file", "no_cpus_found")


@st.composite
def contents(draw, original):
    """Any bytes, the original with a part exchanged, words of the formats in any order, or no file but a directory."""
    kind = draw(st.sampled_from(["any", "changed", "words", "missing", "directory"]))
    if kind == "any":
        return draw(st.binary(max_size=100))
    if kind == "words":
        return b"".join(draw(st.lists(PIECES, max_size=20)))
    if kind == "changed":
        start, length = draw(st.integers(0, len(original))), draw(st.integers(0, 8))
        part = draw(st.one_of(st.binary(max_size=6), PIECES))
        return original[:start] + part + original[start + length :]
    return kind


@st.composite
def trees(draw):
    """The tree with some of its files changed, v1 or v2 only now and then."""
    tree = dict(TREE)
    if draw(st.booleans()):
        tree["proc/self/cgroup"] = b"0::/jobs/one\n"
    for path in draw(st.sets(st.sampled_from(sorted(TREE)), max_size=6)):
        tree[path] = draw(contents(tree[path]))
    for part in ("topology/core_cpus_list", "topology/", "cpu_capacity", "/node/", f"{CPU}/"):
        if draw(st.integers(0, 5)) == 0:
            tree = {path: data for path, data in tree.items() if part not in path}
    return tree


def plant(root, tree):
    for path, data in tree.items():
        file = Path(root, path)
        if data == "missing":
            continue
        if data == "directory":
            file.mkdir(parents=True)
            continue
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)


def check(decision):
    allowed = len(decision.machine.allowed)
    assert allowed >= 1
    assert frozenset().union(*decision.machine.cores) == decision.machine.allowed
    assert sum(len(core) for core in decision.machine.cores) == allowed
    assert 1 <= decision.plan.intra_op.value <= allowed
    assert decision.plan.inter_op.value >= 1
    assert 1 <= decision.plan.python_cpu_count.value <= allowed
    assert all(problem.message.isprintable() for problem in decision.problems)
    assert decision.limit.reason.isprintable()


class TestAnyMachine:
    """Whatever stands in the files, every command that reads them has an answer."""

    def test_the_tree_as_it_is(self):
        """The properties below are worth something only if the files are read at all."""
        with tempfile.TemporaryDirectory() as root:
            plant(root, TREE)
            files = Files(root)
            decision = decide(files, Options(), {})
            details = read_details(files, decision.machine)
        assert decision.machine.allowed == {0, 1, 2, 3}
        assert len(decision.machine.cores) == 2
        assert (decision.limit.quota.version, str(decision.limit.cpus)) == (1, "1.5")
        assert [kind.kind for kind in details.cpu_kinds] == ["performance", "efficiency"]
        assert details.numa_nodes == {0: {0, 1}, 1: {2, 3}}
        assert decision.problems == ()

    @EXAMPLES
    @given(
        tree=trees(),
        exported=st.dictionaries(
            st.sampled_from([v.name for v in VARIABLES] + [option.variable for option in OPTIONS]),
            st.one_of(st.text(max_size=8), st.integers(-1, 2000).map(str)),
            max_size=4,
        ),
    )
    def test_any_bytes_and_any_environment(self, tree, exported):
        try:
            options = parse_options({}, exported)._replace(strict=False)
        except UsageError:
            options = Options()
        with tempfile.TemporaryDirectory() as root:
            plant(root, tree)
            files = Files(root)
            decision = decide(files, options, exported)
            check(decision)
            document = make_document(decision, read_details(files, decision.machine), files)
        assert decision.plan.inter_op.value == (options.inter_op or {"throughput": 2, "latency": 1}[options.mode])
        assert json.loads(json.dumps(document)) == document
        told = [warning["code"] for warning in document["warnings"] if warning["code"] in FILE_PROBLEMS]
        assert len(told) == len(set(told))
