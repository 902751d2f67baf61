from __future__ import annotations

from fractions import Fraction

import pytest
from trees import plant

from tflaunch.cgroup import (
    Membership,
    Mount,
    parse_cfs_quota,
    parse_cpu_max,
    parse_memberships,
    parse_mounts,
    path_below,
    read_quota,
    unescape,
    visible_groups,
)

# Lines of /proc/self/mountinfo. What stands before the type differs by kernel and container engine.
ROOT = "21 1 8:2 / / rw,relatime shared:1 - ext4 /dev/sda2 rw\n"
V2 = "35 24 0:30 / /sys/fs/cgroup rw,nosuid,nodev,noexec shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
V1 = "40 24 0:33 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:11 - cgroup cgroup rw,cpu,cpuacct\n"
V1_DIRECTORY = "/sys/fs/cgroup/cpu,cpuacct"


def v2_group(path, cpu_max):
    return {f"/sys/fs/cgroup{path}/cpu.max": cpu_max}


def v1_group(path, quota, period="100000\n", mount_point=V1_DIRECTORY):
    files = {f"{mount_point}{path}/cpu.cfs_quota_us": quota}
    return files if period is None else {**files, f"{mount_point}{path}/cpu.cfs_period_us": period}


def process(membership, mountinfo):
    return {"/proc/self/cgroup": membership, "/proc/self/mountinfo": mountinfo}


def fraction(cpus):
    return None if cpus is None else Fraction(cpus.numerator, cpus.denominator)


# name: (files, version, quota in CPUs, the file it comes from)
LAYOUTS = {
    "v2, own group": (
        process("0::/fruit/apple\n", ROOT + V2) | v2_group("/fruit/apple", "350000 100000\n"),
        *(2, Fraction(7, 2), "/sys/fs/cgroup/fruit/apple/cpu.max: 350000 100000"),
    ),
    "v2, limit on the parent only": (
        process("0::/fruit/apple\n", V2)
        | v2_group("/fruit/apple", "max 100000\n")
        | v2_group("/fruit", "600000 100000\n"),
        *(2, Fraction(6), "/sys/fs/cgroup/fruit/cpu.max: 600000 100000"),
    ),
    "v2, limit three levels up": (
        process("0::/a/b/c/d\n", V2) | v2_group("/a/b/c/d", "max 100000\n") | v2_group("/a", "500000 100000\n"),
        *(2, Fraction(5), "/sys/fs/cgroup/a/cpu.max: 500000 100000"),
    ),
    "v2, the least of all levels, not the nearest": (
        process("0::/a/b/c\n", V2)
        | v2_group("/a/b/c", "700000 100000\n")
        | v2_group("/a/b", "300000 100000\n")
        | v2_group("/a", "400000 100000\n"),
        *(2, Fraction(3), "/sys/fs/cgroup/a/b/cpu.max: 300000 100000"),
    ),
    "v2, child above its parent": (
        process("0::/a/b\n", V2) | v2_group("/a/b", "150000 100000\n") | v2_group("/a", "70000 100000\n"),
        *(2, Fraction(7, 10), "/sys/fs/cgroup/a/cpu.max: 70000 100000"),
    ),
    "v2, least by quota and period, not by quota": (
        process("0::/a/b\n", V2) | v2_group("/a/b", "50000 10000\n") | v2_group("/a", "200000 100000\n"),
        *(2, Fraction(2), "/sys/fs/cgroup/a/cpu.max: 200000 100000"),
    ),
    "v2, equal levels: own group is named": (
        process("0::/a/b\n", V2) | v2_group("/a/b", "200000 100000\n") | v2_group("/a", "20000 10000\n"),
        *(2, Fraction(2), "/sys/fs/cgroup/a/b/cpu.max: 200000 100000"),
    ),
    "v2, systemd scope beside v1 lines without cpu": (
        process(
            "3:net_cls,net_prio:/\n1:name=systemd:/session.slice/job.scope\n0::/session.slice/job.scope\n", ROOT + V2
        )
        | v2_group("/session.slice/job.scope", "250000 100000\n")
        | v2_group("/session.slice", "max 100000\n"),
        *(2, Fraction(5, 2), "/sys/fs/cgroup/session.slice/job.scope/cpu.max: 250000 100000"),
    ),
    "v2, private namespace after a very long overlay line": (
        process(
            "0::/\n",
            "700 600 0:90 / / rw - overlay overlay rw,lowerdir="
            + ":".join(f"/var/lib/layers/{layer}/fs" for layer in range(2000))
            + f",upperdir=/u\n{V2}",
        )
        | v2_group("", "450000 100000\n"),
        *(2, Fraction(9, 2), "/sys/fs/cgroup/cpu.max: 450000 100000"),
    ),
    "v2, mount root equals own path": (
        process("0::/pods/p1/c1\n", V2.replace(" / /sys", " /pods/p1/c1 /sys")) | v2_group("", "100000 100000\n"),
        *(2, Fraction(1), "/sys/fs/cgroup/cpu.max: 100000 100000"),
    ),
    "v1, own group": (
        process("5:cpu,cpuacct:/fruit/pear\n2:memory:/fruit\n", ROOT + V1) | v1_group("/fruit/pear", "350000\n"),
        *(1, Fraction(7, 2), f"{V1_DIRECTORY}/fruit/pear/cpu.cfs_quota_us: 350000, cpu.cfs_period_us: 100000"),
    ),
    "v1, limit on the parent only": (
        process("5:cpu,cpuacct:/pods/p2/c7\n", V1)
        | v1_group("/pods/p2/c7", "-1\n")
        | v1_group("/pods/p2", "500000\n")
        | v1_group("", "-1\n"),
        *(1, Fraction(5), f"{V1_DIRECTORY}/pods/p2/cpu.cfs_quota_us: 500000, cpu.cfs_period_us: 100000"),
    ),
    "v1, mount root equals own path": (
        process("5:cpu,cpuacct:/pods/p2/c7\n", V1.replace(" / /sys", " /pods/p2/c7 /sys")) | v1_group("", "200000\n"),
        *(1, Fraction(2), f"{V1_DIRECTORY}/cpu.cfs_quota_us: 200000, cpu.cfs_period_us: 100000"),
    ),
    "v1, mount root is a prefix of the path": (
        process("5:cpu,cpuacct:/pods/p2/c7\n", V1.replace(" / /sys", " /pods /sys"))
        | v1_group("/p2/c7", "300000\n")
        | v1_group("/pods/p2/c7", "100000\n"),  # another group, which only looks right
        *(1, Fraction(3), f"{V1_DIRECTORY}/p2/c7/cpu.cfs_quota_us: 300000, cpu.cfs_period_us: 100000"),
    ),
    "v1, a prefix of the name is no prefix of the path": (
        process("5:cpu,cpuacct:/podset/c7\n", V1.replace(" / /sys", " /pod /sys")) | v1_group("/set/c7", "300000\n"),
        *(1, None, None),
    ),
    "v1, cpuacct,cpu": (
        process("5:cpuacct,cpu:/\n", V1.replace("cpu,cpuacct", "cpuacct,cpu"))
        | v1_group("", "220000\n", mount_point="/sys/fs/cgroup/cpuacct,cpu"),
        *(1, Fraction(11, 5), "/sys/fs/cgroup/cpuacct,cpu/cpu.cfs_quota_us: 220000, cpu.cfs_period_us: 100000"),
    ),
    "v1, cpu alone, cpuacct and cpuset elsewhere": (
        process(
            "4:cpuset:/a\n3:cpuacct:/b\n1:cpu:/c\n",
            "50 49 0:41 / /sys/fs/cgroup/cpuset rw - cgroup none rw,cpuset\n"
            "51 49 0:42 / /sys/fs/cgroup/cpuacct rw - cgroup none rw,cpuacct\n"
            "52 49 0:43 / /sys/fs/cgroup/cpu rw - cgroup none rw,cpu\n",
        )
        | v1_group("/a", "100000\n", mount_point="/sys/fs/cgroup/cpuset")
        | v1_group("/b", "200000\n", mount_point="/sys/fs/cgroup/cpuacct")
        | v1_group("/c", "300000\n", mount_point="/sys/fs/cgroup/cpu"),
        *(1, Fraction(3), "/sys/fs/cgroup/cpu/c/cpu.cfs_quota_us: 300000, cpu.cfs_period_us: 100000"),
    ),
    "v1, joined with memory at a place of its own": (
        process("2:memory,cpu,blkio:/x\n", "52 49 0:43 / /cg rw - cgroup none rw,seclabel,memory,cpu,blkio\n")
        | v1_group("/x", "120000\n", mount_point="/cg"),
        *(1, Fraction(6, 5), "/cg/x/cpu.cfs_quota_us: 120000, cpu.cfs_period_us: 100000"),
    ),
    "v1, the named systemd hierarchy only": (
        process("1:name=systemd:/\n", "52 49 0:43 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n"),
        *(None, None, None),
    ),
    "v1, quota without period": (
        process("5:cpu,cpuacct:/\n", V1) | v1_group("", "900000\n", period=None),
        *(1, None, None),
    ),
    "v1, period of zero": (process("5:cpu:/\n", V1) | v1_group("", "900000\n", period="0\n"), *(1, None, None)),
    "v1, no number": (process("5:cpu:/\n", V1) | v1_group("", "123max\n"), *(1, None, None)),
    "v1, empty": (process("5:cpu:/\n", V1) | v1_group("", ""), *(1, None, None)),
    "v1, shares are no limit": (
        process("5:cpu,cpuacct:/\n", V1) | v1_group("", "-1\n") | {f"{V1_DIRECTORY}/cpu.shares": "512\n"},
        *(1, None, None),
    ),
    "v2, weight is no limit": (
        process("0::/a\n", V2)
        | v2_group("/a", "max 100000\n")
        | {"/sys/fs/cgroup/a/cpu.weight": "39\n", "/sys/fs/cgroup/a/cpu.weight.nice": "4\n"},
        *(2, None, None),
    ),
    "hybrid, v1 has cpu": (
        process(
            "6:cpu,cpuacct:/x\n1:name=systemd:/y\n0::/y\n", V2.replace("/sys/fs/cgroup", "/sys/fs/cgroup/unified") + V1
        )
        | v1_group("/x", "400000\n")
        | {"/sys/fs/cgroup/unified/y/cpu.max": "100000 100000\n"},
        *(1, Fraction(4), f"{V1_DIRECTORY}/x/cpu.cfs_quota_us: 400000, cpu.cfs_period_us: 100000"),
    ),
    "hybrid, v1 has cpu, lines the other way round": (
        process(
            "0::/y\n1:name=systemd:/y\n6:cpu,cpuacct:/x\n", V1 + V2.replace("/sys/fs/cgroup", "/sys/fs/cgroup/unified")
        )
        | v1_group("/x", "400000\n")
        | {"/sys/fs/cgroup/unified/y/cpu.max": "100000 100000\n"},
        *(1, Fraction(4), f"{V1_DIRECTORY}/x/cpu.cfs_quota_us: 400000, cpu.cfs_period_us: 100000"),
    ),
    "hybrid, v1 has memory, v2 has cpu": (
        process(
            "3:memory:/x\n0::/y\n",
            "50 49 0:41 / /sys/fs/cgroup/memory rw - cgroup none rw,memory\n"
            + V2.replace("/sys/fs/cgroup", "/sys/fs/cgroup/unified"),
        )
        | {"/sys/fs/cgroup/unified/y/cpu.max": "100000 100000\n"},
        *(2, Fraction(1), "/sys/fs/cgroup/unified/y/cpu.max: 100000 100000"),
    ),
    "hybrid, v1 has cpu and is not mounted": (
        process("6:cpu:/x\n0::/y\n", V2) | v2_group("/y", "100000 100000\n"),
        *(None, None, None),
    ),
    "an odd line with blanks in its options": (
        process(
            "0::/\n",
            "90 80 0:77 / /host rw,noatime - 9p drvfs rw,aname=drvfs;path=D:\\Some Tool - cgroup\\more;uid=0,mmap\n"
            + V2,
        )
        | v2_group("", "400000 100000\n"),
        *(2, Fraction(4), "/sys/fs/cgroup/cpu.max: 400000 100000"),
    ),
    "no optional field": (
        process("0::/\n", "35 24 0:30 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n") | v2_group("", "300000 100000\n"),
        *(2, Fraction(3), "/sys/fs/cgroup/cpu.max: 300000 100000"),
    ),
    "several optional fields": (
        process("0::/\n", V2.replace("shared:9", "shared:9 master:4 propagate_from:2 unbindable"))
        | v2_group("", "300000 100000\n"),
        *(2, Fraction(3), "/sys/fs/cgroup/cpu.max: 300000 100000"),
    ),
    "escapes in the mount point": (
        process("0::/a\n", V2.replace("/sys/fs/cgroup", "/mnt/of\\040all\\011\\134groups"))
        | {"/mnt/of all\t\\groups/a/cpu.max": "250000 100000\n"},
        *(2, Fraction(5, 2), r"/mnt/of all\t\groups/a/cpu.max: 250000 100000"),
    ),
    "escapes in the root": (
        process("0::/two words/x\n", V2.replace(" / /sys", " /two\\040words /sys")) | v2_group("/x", "90000 100000\n"),
        *(2, Fraction(9, 10), "/sys/fs/cgroup/x/cpu.max: 90000 100000"),
    ),
    "colons and blanks in the name of the group": (
        process("0::/cri:1:two words\n", V2) | v2_group("/cri:1:two words", "90000 100000\n"),
        *(2, Fraction(9, 10), "/sys/fs/cgroup/cri:1:two words/cpu.max: 90000 100000"),
    ),
    "v1, colons in the name of the group": (
        process("5:cpu:/a:cpu:/b\n", V1) | v1_group("/a:cpu:/b", "90000\n"),
        *(1, Fraction(9, 10), f"{V1_DIRECTORY}/a:cpu:/b/cpu.cfs_quota_us: 90000, cpu.cfs_period_us: 100000"),
    ),
    "mounted twice, the first not readable": (
        process("5:cpu,cpuacct:/z\n", V1.replace(V1_DIRECTORY, "/cpu,cpuacct") + V1) | v1_group("/z", "350000\n"),
        *(1, Fraction(7, 2), f"{V1_DIRECTORY}/z/cpu.cfs_quota_us: 350000, cpu.cfs_period_us: 100000"),
    ),
    "mounted twice, the second not readable": (
        process("5:cpu,cpuacct:/z\n", V1 + V1.replace(V1_DIRECTORY, "/cpu,cpuacct")) | v1_group("/z", "350000\n"),
        *(1, Fraction(7, 2), f"{V1_DIRECTORY}/z/cpu.cfs_quota_us: 350000, cpu.cfs_period_us: 100000"),
    ),
    "cpuset mounted twice before cpu": (
        process(
            "5:cpu,cpuacct:/\n4:cpuset:/\n",
            "60 24 0:37 / /cpusets rw - cgroup none rw,cpuset\n"
            "61 24 0:37 / /sys/fs/cgroup/cpuset rw - cgroup none rw,cpuset\n" + V1,
        )
        | v1_group("", "350000\n"),
        *(1, Fraction(7, 2), f"{V1_DIRECTORY}/cpu.cfs_quota_us: 350000, cpu.cfs_period_us: 100000"),
    ),
    "v2 mounted twice, one at the root of another namespace": (
        process("0::/\n", "60 24 0:30 /../.. /inner ro - cgroup2 cgroup2 rw\n" + V2) | v2_group("", "300000 100000\n"),
        *(2, Fraction(3), "/sys/fs/cgroup/cpu.max: 300000 100000"),
    ),
    "v2 mounted without the cpu controller": (
        process("0::/a\n", V2) | {"/sys/fs/cgroup/cgroup.controllers": "cpuset io memory\n"},
        *(None, None, None),
    ),
    "v2 at the root of the hierarchy, which has no cpu.max": (
        process("0::/\n", V2) | {"/sys/fs/cgroup/cgroup.controllers": "cpuset cpu io memory\n"},
        *(2, None, None),
    ),
    "no cgroup mount to be seen": (process("0::/a\n", ROOT), *(None, None, None)),
    "empty mountinfo": (process("0::/a\n", ""), *(None, None, None)),
    "no mountinfo": ({"/proc/self/cgroup": "0::/a\n"} | v2_group("/a", "100000 100000\n"), *(None, None, None)),
    "no membership": ({"/proc/self/mountinfo": V2} | v2_group("", "100000 100000\n"), *(None, None, None)),
    "empty membership": (process("", V2) | v2_group("", "100000 100000\n"), *(None, None, None)),
    "v2 line with a wrong number": (process("1::/\n", V2) | v2_group("", "100000 100000\n"), *(None, None, None)),
    "nothing at all": ({}, *(None, None, None)),
    "garbage among good lines": (
        process(
            "garbage\n::\n0:/\n\n-1:cpu:/a\n0:cpu:/a\nx::/a\n0::a\n0::/a\n0",
            "garbage\n\n - cgroup2\n1 2 3 - cgroup2 cgroup2 rw\n35 24 0:30 / relative rw - cgroup2 cgroup2 rw\n"
            "36 35 98:0 /mnt1 /mnt2 - ext3 /dev/root rw\n35 24 0:30 / /sys/fs/cgroup rw cgroup2 cgroup2 rw\n" + V2,
        )
        | v2_group("/a", "200000 100000\n"),
        *(2, Fraction(2), "/sys/fs/cgroup/a/cpu.max: 200000 100000"),
    ),
    "undecodable bytes among good lines": (
        {
            "/proc/self/cgroup": b"7:\xff\xfe:/\xff\n0::/a\n",
            "/proc/self/mountinfo": b"9 9 0:9 /\xff /\xfe rw - cgroup2 \xff rw\n" + V2.encode(),
        }
        | v2_group("/a", "200000 100000\n"),
        *(2, Fraction(2), "/sys/fs/cgroup/a/cpu.max: 200000 100000"),
    ),
    "a group whose name is no UTF-8": (
        {
            "/proc/self/cgroup": b"0::/\xe9\n",
            "/proc/self/mountinfo": V2,
            "/sys/fs/cgroup/\udce9/cpu.max": "200000 100000\n",
        },
        *(2, Fraction(2), r"/sys/fs/cgroup/\udce9/cpu.max: 200000 100000"),
    ),
}


class TestLayouts:
    """The quota is the least over every visible level of the hierarchy that has the cpu controller."""

    @pytest.mark.parametrize("name", LAYOUTS)
    def test_quota(self, tmp_path, name):
        files, version, cpus, source = LAYOUTS[name]
        quota = read_quota(plant(tmp_path, files))
        assert (quota.version, fraction(quota.cpus), quota.source) == (version, cpus, source)

    def test_a_limit_that_changed_is_seen_at_the_next_reading(self, tmp_path):
        before = plant(tmp_path, process("0::/\n", V2) | v2_group("", "100000 100000\n"))
        assert fraction(read_quota(before).cpus) == 1
        after = plant(tmp_path, v2_group("", "800000 100000\n"))
        assert fraction(read_quota(after).cpus) == 8

    def test_every_level_is_shown_own_group_first(self, tree):
        files = tree(
            process("0::/a/b\n", V2)
            | v2_group("/a/b", "max 100000\n")
            | v2_group("/a", "400000 100000\n")
            | v2_group("", "max 100000\n")
        )
        assert [(reading.source, fraction(reading.cpus)) for reading in read_quota(files).readings] == [
            ("/sys/fs/cgroup/a/b/cpu.max: max 100000", None),
            ("/sys/fs/cgroup/a/cpu.max: 400000 100000", 4),
            ("/sys/fs/cgroup/cpu.max: max 100000", None),
        ]

    @pytest.mark.parametrize("name", ["v1, own group", "v2, own group", "nothing at all", "no cgroup mount to be seen"])
    def test_an_ordinary_machine_has_no_problems(self, tmp_path, name):
        files = plant(tmp_path, LAYOUTS[name][0])
        read_quota(files)
        assert files.problems() == ()


class TestHidden:
    """Where the process's own group cannot be seen, that is said; an ancestor that can be seen still limits."""

    @pytest.mark.parametrize(
        ("membership", "root", "cpus", "is_hidden"),
        [
            ("0::/", "/", "1", False),
            ("0::/", "/..", "1", True),  # the mount shows the parent of the namespace's root
            ("0::/", "/../..", "1", True),
            ("0::/../x", "/../..", "1", True),  # the group is a child of the namespace root's parent
            ("0::/../x", "/..", "1/2", False),  # ... which this mount shows
            ("0::/../x", "/", None, True),
            ("0::/../../x", "/..", None, True),  # above the mounted group: its limit does not hold here
            ("0::/x", "/unrelated", None, True),
            ("0::/", "/x", None, True),
            ("0::/x", "/x/y", None, True),
            ("0::/x", "/../y", None, True),
            ("0::/x/../y", "/", None, True),
        ],
    )
    def test_v2(self, tree, membership, root, cpus, is_hidden):
        files = tree(
            process(f"{membership}\n", V2.replace(" / /sys", f" {root} /sys"))
            | v2_group("", "100000 100000\n")
            | v2_group("/x", "50000 100000\n")
            | v2_group("/y", "20000 100000\n")
        )
        quota = read_quota(files)
        assert fraction(quota.cpus) == (None if cpus is None else Fraction(cpus))
        assert quota.is_hidden is is_hidden

    def test_v1_ancestor(self, tree):
        files = tree(process("5:cpu:/\n", V1.replace(" / /sys", " /../.. /sys")) | v1_group("", "300000\n"))
        quota = read_quota(files)
        assert (quota.version, fraction(quota.cpus), quota.is_hidden) == (1, 3, True)

    def test_seen_in_another_hierarchy_only(self, tree):
        files = tree(
            process(
                "5:cpu:/x\n3:memory:/x\n",
                V1.replace(" / /sys", " /unrelated /sys") + "9 8 0:7 / /m rw - cgroup m rw,memory\n",
            )
            | v1_group("/x", "100000\n", mount_point="/m")
        )
        quota = read_quota(files)
        assert (quota.version, quota.cpus, quota.is_hidden) == (1, None, True)

    def test_the_whole_machine_is_mounted_and_nothing_can_be_read(self, tree):
        files = tree(
            process("0::/\n", V2.replace(" / /sys", " /../../.. /sys"))
            | {"/sys/fs/cgroup/cgroup.controllers": "cpuset cpu io memory\n"}
        )
        quota = read_quota(files)
        assert (quota.version, quota.cpus, quota.is_hidden) == (2, None, True)

    def test_another_mount_shows_it(self, tree):
        files = tree(
            process("0::/\n", V2 + V2.replace(" / /sys/fs/cgroup", " /.. /outer")) | v2_group("", "max 100000\n")
        )
        assert read_quota(files).is_hidden is False

    def test_no_mount_is_not_hidden_but_absent(self, tree):
        quota = read_quota(tree(process("0::/a\n", ROOT)))
        assert (quota.version, quota.is_hidden) == (None, False)


class TestCpuMax:
    """cpu.max gives an exact number of CPUs, or none; what is neither costs one warning that quotes the line."""

    @pytest.mark.parametrize(
        ("text", "cpus"),
        [
            ("25000 100000\n", "1/4"),
            ("150000 100000\n", "3/2"),
            ("220000 100000\n", "11/5"),
            ("850000 100000\n", "17/2"),
            ("100000 300000\n", "1/3"),
            ("20000 5000\n", "4"),
            ("1000 1000000\n", "1/1000"),
            ("6400000 100000\n", "64"),
            ("9223372036854775807 9223372036854775807\n", "1"),
            ("150000 100000", "3/2"),
            ("150000\t100000\n", "3/2"),
            ("150000 100000\n\0", "3/2"),
        ],
        ids=repr,
    )
    def test_quota(self, tree, text, cpus):
        files = tree(process("0::/\n", V2) | v2_group("", text))
        assert fraction(read_quota(files).cpus) == Fraction(cpus)
        assert files.problems() == ()

    @pytest.mark.parametrize(
        "text", ["max 100000\n", "max\n", "max", "max 100000\0", "", "\n", " \n", "\0\0"], ids=repr
    )
    def test_no_quota(self, tree, text):
        files = tree(process("0::/\n", V2) | v2_group("", text))
        quota = read_quota(files)
        assert (quota.version, quota.cpus) == (2, None)
        assert files.problems() == ()

    @pytest.mark.parametrize(
        "text",
        [
            "150000\n",
            "150000 100000 0\n",
            "150000 0\n",
            "0 100000\n",
            "-1 100000\n",
            "-150000 100000\n",
            "150000 -100000\n",
            "+150000 100000\n",
            "apple 100000\n",
            "150000 pear\n",
            "123max 100000\n",
            "Max 100000\n",
            "1.5 1\n",
            "1e5 100000\n",
            "0x100 100000\n",
            "150_000 100000\n",
            "٣ 1\n",
            f"{'9' * 21} 100000\n",
            f"100000 {'9' * 5000}\n",
            "150000\0 100000\n",
        ],
        ids=lambda text: ascii(text[:16]),
    )
    def test_malformed(self, tree, text):
        files = tree(process("0::/a\n", V2) | v2_group("/a", text) | v2_group("", "700000 100000\n"))
        quota = read_quota(files)
        assert fraction(quota.cpus) == 7  # the other level still counts
        (problem,) = files.problems()
        assert problem.code == "malformed_file"
        assert problem.message.startswith("ignored /sys/fs/cgroup/a/cpu.max: ")
        assert text.split()[0].replace("\0", r"\x00")[:80] in problem.message
        assert len(problem.message) < 300

    def test_undecodable_bytes(self, tree):
        files = tree(process("0::/\n", V2) | {"/sys/fs/cgroup/cpu.max": b"\xff\xfe 100000\n"})
        assert read_quota(files).cpus is None
        assert [problem.code for problem in files.problems()] == ["malformed_file"]

    def test_unreadable(self, tree):
        files = tree(process("0::/a\n", V2) | {"/sys/fs/cgroup/a/cpu.max/": ""} | v2_group("", "700000 100000\n"))
        assert fraction(read_quota(files).cpus) == 7
        assert [problem.code for problem in files.problems()] == ["unreadable_file"]

    def test_a_mount_point_with_a_nul(self, tree):
        files = tree(
            process("0::/\n", V2.replace("/sys/fs/cgroup", "/sys\\000fs") + V2) | v2_group("", "700000 100000\n")
        )
        assert fraction(read_quota(files).cpus) == 7
        assert [problem.code for problem in files.problems()] == ["malformed_file"]

    @pytest.mark.parametrize(("text", "cpus"), [("max 100000", None), ("50000 100000", Fraction(1, 2))])
    def test_the_parser_alone(self, text, cpus):
        assert fraction(parse_cpu_max(text)) == cpus


class TestCfsQuota:
    """The two files of cgroup v1 give an exact number of CPUs, or none."""

    @pytest.mark.parametrize(
        ("quota", "period", "cpus"),
        [
            ("25000\n", "100000\n", "1/4"),
            ("220000\n", "100000\n", "11/5"),
            ("10000\n", "30000\n", "1/3"),
            ("9223372036854775807\n", "9223372036854775807\n", "1"),
        ],
    )
    def test_quota(self, quota, period, cpus):
        assert fraction(parse_cfs_quota(quota, period)) == Fraction(cpus)

    @pytest.mark.parametrize("period", ["100000\n", "0\n", "", None])
    @pytest.mark.parametrize("quota", ["-1\n", "-1", "", "\n"], ids=repr)
    def test_no_quota_whatever_the_period(self, quota, period):
        assert parse_cfs_quota(quota, period) is None

    @pytest.mark.parametrize(
        ("quota", "period"),
        [
            ("100000\n", None),
            ("100000\n", ""),
            ("100000\n", "0\n"),
            ("100000\n", "-1\n"),
            ("0\n", "100000\n"),
            ("-2\n", "100000\n"),
            ("max\n", "100000\n"),
            ("123max\n", "100000\n"),
            ("100000 100000\n", "100000\n"),
            ("9" * 21, "100000\n"),
        ],
        ids=repr,
    )
    def test_malformed(self, quota, period):
        with pytest.raises(ValueError, match="period"):
            parse_cfs_quota(quota, period)

    def test_half_a_pair_costs_one_warning_that_names_the_file(self, tree):
        files = tree(process("5:cpu:/\n", V1) | v1_group("", "900000\n", period=None))
        read_quota(files)
        (problem,) = files.problems()
        assert problem.message == (f"ignored {V1_DIRECTORY}/cpu.cfs_quota_us: 900000: there is no period beside it")


class TestParseMemberships:
    """Each line of /proc/self/cgroup is an id, controllers and a path; what is none is skipped."""

    def test_lines(self):
        text = "8:cpu,cpuacct:/pods/p1\n1:name=systemd:/init.scope\n0::/pods/p1\n"
        assert parse_memberships(text) == [
            Membership(("cpu", "cpuacct"), "/pods/p1"),
            Membership(("name=systemd",), "/init.scope"),
            Membership((), "/pods/p1"),
        ]

    @pytest.mark.parametrize("path", ["/", "/../x", "/a:b", "/a b", "/a\\b", "/gone (deleted)", "/" + "x" * 4000])
    def test_any_path(self, path):
        assert parse_memberships(f"0::{path}\n") == [Membership((), path)]

    @pytest.mark.parametrize(
        "line",
        [
            "",
            "0",
            "0:",
            "0::",
            "0::a",
            ":cpu:/",
            "0:cpu:/",
            "4::/",
            "-1:cpu:/",
            "x:cpu:/",
            "٣:cpu:/",
            "cpu:/",
            "0::/" + "x" * 5000,
        ],
        ids=lambda line: ascii(line[:12]),
    )
    def test_anything_else_is_skipped(self, line):
        assert parse_memberships(f"{line}\n9:cpu:/a\n{line}") == [Membership(("cpu",), "/a")]


class TestParseMounts:
    """Of mountinfo only the cgroup mounts are taken, each by the documented fields."""

    def test_both_versions(self):
        assert parse_mounts(ROOT + V1 + V2) == [
            Mount("/", V1_DIRECTORY, 1, ("rw", "cpu", "cpuacct")),
            Mount("/", "/sys/fs/cgroup", 2, ("rw", "nsdelegate")),
        ]

    def test_the_source_does_not_name_controllers(self):
        (mount,) = parse_mounts("1 2 0:3 / /m rw - cgroup cpu rw,memory\n")
        assert "cpu" not in mount.controllers

    @pytest.mark.parametrize("source", ["none", "cgroup", "", "systemd"])
    def test_any_source(self, source):
        (mount,) = parse_mounts(f"1 2 0:3 / /m rw - cgroup {source} rw,cpu\n")
        assert mount == Mount("/", "/m", 1, ("rw", "cpu"))

    @pytest.mark.parametrize(
        "line",
        [
            "",
            " - ",
            " - cgroup2",
            "1 2 0:3 / /m - cgroup2 none rw",
            "1 2 0:3 root /m rw - cgroup2 none rw",
            "1 2 0:3 / m rw - cgroup2 none rw",
            "1 2 0:3 / /m rw cgroup2 none rw",
            "1 2 0:3 / /m rw -cgroup2 none rw",
            "1 2 0:3 / /m rw - cgroup3 none rw",
            "1 2 0:3 / /m rw - tmpfs cgroup2 rw - cgroup2 none rw",
        ],
        ids=repr,
    )
    def test_anything_else_is_skipped(self, line):
        assert parse_mounts(f"{line}\n{V2}{line}") == parse_mounts(V2)


class TestUnescape:
    """The kernel's octal escapes become the characters they stand for."""

    @pytest.mark.parametrize(
        ("field", "text"),
        [
            ("/plain", "/plain"),
            (r"/a\040b", "/a b"),
            (r"\011\012\134\043", "\t\n\\#"),
            (r"/a\134040b", r"/a\040b"),  # an escaped backslash, then digits
            (r"/a\04", r"/a\04"),
            (r"/a\089b", r"/a\089b"),
            (r"/a\x20b", r"/a\x20b"),
            ("/a\\", "/a\\"),
            ("\\\\040", "\\ "),
        ],
    )
    def test_field(self, field, text):
        assert unescape(field) == text


class TestVisibleGroups:
    """A group's directories are found by cutting the mount's root from its path."""

    @pytest.mark.parametrize(
        ("root", "path", "below"),
        [
            ("/", "/", []),
            ("/", "/a/b", ["a", "b"]),
            ("/a", "/a/b", ["b"]),
            ("/a/b", "/a/b", []),
            ("/a/", "/a//b/", ["b"]),
            ("/..", "/../b", ["b"]),
            ("/a", "/ab", None),
            ("/a/b", "/a", None),
            ("/b", "/a", None),
            ("/", "/../b", None),
            ("/..", "/", None),
        ],
    )
    def test_path_below(self, root, path, below):
        assert path_below(Mount(root, "/m", 2, ()), path) == below

    @pytest.mark.parametrize("mount_point", ["/m", "/m/", "/"])
    def test_every_level_up_to_the_mount_point(self, mount_point):
        base = mount_point.rstrip("/")
        groups = visible_groups(Mount("/a", mount_point, 2, ()), "/a/b/c")
        assert groups == (f"{base}/b/c", f"{base}/b", base)
