"""Every parser on any text: an answer or the ValueError that it documents, and answers that are right."""

from __future__ import annotations

from fractions import Fraction
from math import ceil, floor

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tflaunch.cgroup import parse_cfs_quota, parse_cpu_max, parse_memberships, parse_mounts, unescape
from tflaunch.cpuinfo import parse_cpuinfo
from tflaunch.cpulist import MAX_CPU, format_cpulist, parse_cpulist, parse_cpumask
from tflaunch.cpus import Cpus, least, parse_cpus
from tflaunch.text import natural, printable

EXAMPLES = settings(deadline=None, max_examples=150)

BYTES = st.binary(max_size=200).map(lambda data: data.decode("utf-8", "surrogateescape"))
# Letters that the formats are made of come up often enough to pass the first checks of a parser.
NEARLY = st.text(alphabet="0123456789,-:./ \t\n\\mxafp_+'()٣", max_size=60)
WORDS = st.lists(
    st.sampled_from(
        [
            *[
                "0",
                "1",
                "36",
                "max",
                "100000",
                "-1",
                "cpu",
                "cgroup",
                "cgroup2",
                "/",
                "/..",
                " - ",
                "-",
                "rw",
                "rw,cpu",
            ],
            *[
                "processor",
                "physical id",
                "core id",
                "processor 3",
                ":",
                "\n",
                "\t",
                " ",
                ",",
                "\\040",
                "\\",
                "\0",
                "٣",
            ],
        ]
    ),
    max_size=40,
).map("".join)
TEXT = st.one_of(st.text(max_size=200), BYTES, NEARLY, WORDS)

# Up to the 8192 CPUs that Linux can be built for, most of them near each other.
CPU_SETS = st.frozensets(st.one_of(st.integers(0, 80), st.integers(0, 8191)), max_size=60)
POSITIVE = st.one_of(st.integers(1, 20), st.integers(1, 10**7), st.integers(1, 10**20 - 1))
CPUS = st.builds(Cpus, POSITIVE, POSITIVE)
# A path of a group or mount as the kernel may have it: anything but the slash in a component, and no NUL.
PATHS = st.lists(st.text(st.characters(exclude_characters="/\0"), min_size=1, max_size=10), max_size=5).map(
    lambda components: "/" + "/".join(components)
)


def escape(path):
    """As the kernel writes a path into mountinfo: seq_path() with " \\t\\n\\\\"."""
    return "".join(f"\\{ord(c):03o}" if c in " \t\n\\" else c for c in path)


def fraction(cpus):
    return Fraction(cpus.numerator, cpus.denominator)


class TestAnyText:
    """No text makes a parser fail in another way than the ValueError that it documents."""

    @pytest.mark.parametrize("parse", [parse_cpulist, parse_cpumask, parse_cpus, parse_cpu_max])
    @EXAMPLES
    @given(text=TEXT)
    def test_value_or_value_error(self, parse, text):
        try:
            value = parse(text)
        except ValueError:
            return
        if parse in (parse_cpulist, parse_cpumask):
            assert all(0 <= cpu <= MAX_CPU for cpu in value)
        elif value is not None:
            assert value.numerator > 0
            assert value.denominator > 0

    @EXAMPLES
    @given(quota=TEXT, period=st.none() | TEXT)
    def test_cfs_quota(self, quota, period):
        try:
            value = parse_cfs_quota(quota, period)
        except ValueError:
            return
        assert value is None or fraction(value) > 0

    @pytest.mark.parametrize("parse", [parse_memberships, parse_mounts])
    @EXAMPLES
    @given(text=TEXT)
    def test_lines(self, parse, text):
        assert len(parse(text)) <= text.count("\n") + 1

    @EXAMPLES
    @given(text=TEXT)
    def test_unescape(self, text):
        assert len(unescape(text)) <= len(text)

    @EXAMPLES
    @given(text=TEXT)
    def test_cpuinfo(self, text):
        info = parse_cpuinfo(text)
        assert all(0 <= cpu <= MAX_CPU for cpu in info.cores)
        assert info.model is None or info.model in text

    @EXAMPLES
    @given(text=TEXT)
    @example("٣")
    @example("1_000")
    @example("9" * 5000)
    def test_natural(self, text):
        number = natural(text)
        is_number = 1 <= len(text) <= 20 and set(text) <= set("0123456789")
        assert number == (int(text) if is_number else None)

    @EXAMPLES
    @given(text=TEXT)
    def test_printable(self, text):
        shown = printable(text)
        assert shown.isprintable()
        shown.encode("utf-8")
        assert shown == text or not text.isprintable()


class TestCpuSets:
    """What the kernel would write for a set of CPUs is read as that set."""

    @EXAMPLES
    @given(cpus=CPU_SETS)
    def test_list(self, cpus):
        text = format_cpulist(cpus)
        assert parse_cpulist(text) == cpus
        assert parse_cpulist(f"{text}\n") == cpus
        numbers = [tuple(map(int, part.split("-"))) for part in text.split(",")] if text else []
        # As few and as ordered as the kernel's own: each range starts at least two above the end of the one before.
        assert all(later[0] > earlier[-1] + 1 for earlier, later in zip(numbers, numbers[1:]))

    @EXAMPLES
    @given(cpus=st.lists(st.integers(0, 300), min_size=1, max_size=30))
    def test_list_in_any_order(self, cpus):
        assert parse_cpulist(",".join(map(str, cpus))) == set(cpus)

    @EXAMPLES
    @given(first=st.integers(0, MAX_CPU), last=st.integers(0, 2 * MAX_CPU))
    def test_range(self, first, last):
        if first <= last <= MAX_CPU:
            assert parse_cpulist(f"{first}-{last}") == frozenset(range(first, last + 1))
        else:
            with pytest.raises(ValueError, match="not a list of CPUs"):
                parse_cpulist(f"{first}-{last}")

    @EXAMPLES
    @given(cpus=CPU_SETS, extra_groups=st.integers(0, 3))
    def test_mask(self, cpus, extra_groups):
        bits = sum(1 << cpu for cpu in cpus)
        count = max(cpus, default=0) // 32 + 1
        groups = [f"{bits >> 32 * group & 0xFFFFFFFF:08x}" for group in reversed(range(count))]
        assert parse_cpumask(",".join(["00000000"] * extra_groups + groups) + "\n") == cpus
        assert parse_cpumask(f"{bits:x}") == cpus


class TestCpus:
    """A number of CPUs is an exact fraction."""

    @EXAMPLES
    @given(one=CPUS, other=CPUS)
    def test_comparison(self, one, other):
        assert one.is_less_than(other) == (fraction(one) < fraction(other))
        assert fraction(least([one, other])) == min(fraction(one), fraction(other))

    @EXAMPLES
    @given(cpus=CPUS)
    def test_rounding(self, cpus):
        exact = fraction(cpus)
        assert cpus.floor() == floor(exact)
        assert cpus.ceil() == ceil(exact)
        assert cpus.nearest() == floor(exact + Fraction(1, 2))
        assert cpus.as_float() == float(exact)

    @EXAMPLES
    @given(cpus=CPUS)
    def test_text_is_the_number_to_three_decimals(self, cpus):
        exact = fraction(cpus)
        shown = Fraction(str(cpus))
        if exact.denominator == 1:
            assert shown == exact
        elif exact >= Fraction(1, 1000):
            # Half a thousandth, and what a float of that size cannot tell apart.
            assert abs(shown - exact) <= Fraction(1, 2000) + exact / 2**50
        else:
            assert abs(shown - exact) <= exact / 2

    @EXAMPLES
    @given(whole=st.integers(0, 10**9), decimals=st.text("0123456789", max_size=9))
    def test_decimal(self, whole, decimals):
        text = f"{whole}.{decimals}" if decimals else f"{whole}"
        if Fraction(text) == 0:
            with pytest.raises(ValueError, match="not a number of CPUs"):
                parse_cpus(text)
        else:
            assert fraction(parse_cpus(text)) == Fraction(text)

    @EXAMPLES
    @given(number=st.integers(1, 10**18), suffix=st.sampled_from([("m", 3), ("u", 6), ("n", 9)]))
    def test_kubernetes_quantity(self, number, suffix):
        letter, power = suffix
        assert fraction(parse_cpus(f"{number}{letter}")) == Fraction(number, 10**power)

    @EXAMPLES
    @given(quota=POSITIVE, period=POSITIVE)
    def test_quota_of_both_versions(self, quota, period):
        exact = Fraction(quota, period)
        assert fraction(parse_cpu_max(f"{quota} {period}\n")) == exact
        assert fraction(parse_cfs_quota(f"{quota}\n", f"{period}\n")) == exact

    @EXAMPLES
    @given(period=POSITIVE)
    def test_no_quota(self, period):
        assert parse_cpu_max(f"max {period}\n") is None
        assert parse_cfs_quota("-1\n", f"{period}\n") is None


class TestGroups:
    """Paths with any characters come through the escapes of mountinfo and the colons of /proc/self/cgroup."""

    @EXAMPLES
    @given(path=PATHS)
    def test_unescape(self, path):
        assert unescape(escape(path)) == path

    @EXAMPLES
    @given(
        root=PATHS,
        mount_point=PATHS,
        optional=st.lists(st.sampled_from(["shared:7", "master:1", "propagate_from:2", "unbindable"])),
        version=st.sampled_from([1, 2]),
        before=TEXT,
    )
    def test_mount(self, root, mount_point, optional, version, before):
        kind, options = ("cgroup", "rw,cpu,cpuacct") if version == 1 else ("cgroup2", "rw,nsdelegate")
        fields = ["36", "35", "0:30", escape(root), escape(mount_point), "rw,noatime", *optional]
        line = f"{' '.join(fields)} - {kind} source of it {options}"
        mounts = parse_mounts(f"{before}\n{line}\n")
        mount = mounts[-1]
        assert (mount.root, mount.mount_point, mount.version) == (root, mount_point, version)
        assert len(mounts) <= before.count("\n") + 2

    @EXAMPLES
    @given(path=PATHS.filter(lambda path: "\n" not in path), controllers=st.sampled_from([(), ("cpu",), ("cpu", "io")]))
    def test_membership(self, path, controllers):
        line = f"{7 if controllers else 0}:{','.join(controllers)}:{path}"
        (membership,) = parse_memberships(f"{line}\n")
        assert membership == (controllers, path)
