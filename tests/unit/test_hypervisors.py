"""Machines whose files were made up by a hypervisor or a container tool: what they say is not taken on trust."""

from __future__ import annotations

import pytest
from trees import cores, online, status

from tflaunch.cgroup import read_quota
from tflaunch.cli.explain import explain
from tflaunch.cpus import Cpus
from tflaunch.decision import decide
from tflaunch.errors import TflaunchError
from tflaunch.machine import read_machine
from tflaunch.options import Options


def codes(tree_files, options=None):
    decision = decide(tree_files, options or Options(), {})
    return [problem.code for problem in (*tree_files.problems(), *decision.problems)]


class TestOneCoreOfEverything:
    """More threads than any processor has in a core are that many cores: else all would share one thread."""

    def test_sibling_lists(self, tree):
        files = tree(online("0-63") | cores("0-63"))
        assert len(read_machine(files).cores) == 64
        assert codes(files) == ["malformed_file"]

    def test_smt8_is_believed(self, tree):
        files = tree(online("0-15") | cores("0-7", "8-15"))
        assert len(read_machine(files).cores) == 2
        assert codes(files) == []

    def test_cpuinfo_without_smt(self, tree):
        block = "processor : {}\nphysical id : 0\nsiblings : 1\ncore id : 0\ncpu cores : 1\n\n"
        files = tree({"/proc/cpuinfo": "".join(block.format(cpu) for cpu in range(8))})
        assert len(read_machine(files).cores) == 8

    def test_cpuinfo_with_smt(self, tree):
        block = "processor : {}\nphysical id : 0\nsiblings : 8\ncore id : {}\ncpu cores : 4\n\n"
        files = tree({"/proc/cpuinfo": "".join(block.format(cpu, cpu % 4) for cpu in range(8))})
        assert len(read_machine(files).cores) == 4


class TestVirtualSys:
    """lxcfs shows a container as many CPUs as its limit, numbered from 0; the mask keeps the kernel's numbers."""

    def test_allowed_cpus_that_are_not_online(self, tree):
        files = tree(online("0-1") | status("0-63"))
        assert len(read_machine(files).allowed) == 64
        assert codes(files) == ["limit_hidden"]

    def test_not_when_the_user_says_the_limit(self, tree):
        files = tree(online("0-1") | status("0-63"))
        assert codes(files, Options(cpus=Cpus(2), origins=(("cpus", "--cpus 2"),))) == []


def test_of_two_mounts_at_one_place_the_later_one_is_seen(tree):
    mounts = [
        "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw",
        "31 30 0:26 /a /sys/fs/cgroup rw - cgroup2 cgroup2 rw",
    ]
    files = tree(
        {
            "/proc/self/cgroup": "0::/a\n",
            "/proc/self/mountinfo": "\n".join(mounts),
            "/sys/fs/cgroup/cpu.max": "100000 100000\n",
            "/sys/fs/cgroup/a/cpu.max": "50000 100000\n",  # of the child /a/a
        }
    )
    assert str(read_quota(files).cpus) == "1"


def test_strict_counts_what_only_explain_reads(tree, capsys):
    files = tree(online("0-3") | cores("0", "1", "2", "3") | {"/sys/devices/system/node/node0/cpulist": "garbage\n"})
    with pytest.raises(TflaunchError, match="node0"):
        explain(Options(strict=True, origins=(("strict", "--strict"),)), as_json=True, sysroot=files.root)
    assert capsys.readouterr().out == ""
