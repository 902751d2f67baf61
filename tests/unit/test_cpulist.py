from __future__ import annotations

import contextlib

import pytest
from trees import bitmap, collapse

from tflaunch.cpulist import MAX_CPU, format_cpulist, parse_cpulist, parse_cpumask


class TestParseCpulist:
    """The kernel's list of CPUs becomes the set of its numbers; whatever is none is refused."""

    @pytest.mark.parametrize(
        ("text", "cpus"),
        [
            ("0\n", {0}),
            ("0-3\n", {0, 1, 2, 3}),
            ("0-3,8\n", {0, 1, 2, 3, 8}),
            ("5,7,9-10", {5, 7, 9, 10}),
            ("4-4", {4}),
            ("7,2-3", {2, 3, 7}),
            ("0-3,2-5", {0, 1, 2, 3, 4, 5}),
            ("\t0-1\n", {0, 1}),
            ("65535", {65535}),
        ],
    )
    def test_list(self, text, cpus):
        assert parse_cpulist(text) == cpus

    @pytest.mark.parametrize("text", ["", "\n", " \n"], ids=repr)
    def test_an_empty_line_is_the_empty_set(self, text):
        assert parse_cpulist(text) == frozenset()

    @pytest.mark.parametrize(
        "text",
        [
            "all",
            ",",
            "0,",
            ",0",
            "0,,2",
            "0-",
            "-3",
            "-1",
            "3-1",
            "0--3",
            "0-1-2",
            "0-3 8",
            "0, 3",
            "0\n1",
            "1.5",
            "1e1",
            "0x3",
            "+1",
            "1_0",
            "٣",
            "0-3:1/2",
            "0\0",
            "ff,0000010f",
            "\udcff",
        ],
        ids=ascii,
    )
    def test_anything_else_is_refused(self, text):
        with pytest.raises(ValueError, match="not a list of CPUs"):
            parse_cpulist(text)

    @pytest.mark.parametrize(
        "text", ["65536", "0-65536", "0-99999999999", "0-" + "9" * 5000], ids=lambda text: text[:14]
    )
    def test_a_number_no_kernel_has_does_not_fill_memory(self, text):
        with pytest.raises(ValueError, match="not a list of CPUs"):
            parse_cpulist(text)

    @pytest.mark.usefixtures("deadline")
    def test_a_list_that_names_every_cpu_again_and_again_comes_to_an_end(self):
        with contextlib.suppress(ValueError):  # refused or understood: both are answers
            parse_cpulist(",".join(["0-65535"] * 100_000))

    def test_the_message_quotes_no_more_than_a_line(self):
        with pytest.raises(ValueError, match="'xxx") as caught:
            parse_cpulist("x" * 10_000_000)
        assert len(str(caught.value)) < 200


class TestParseCpumask:
    """The kernel's bitmap becomes the set of its CPUs; whatever is none is refused."""

    @pytest.mark.parametrize(
        ("text", "cpus"),
        [
            ("0\n", set()),
            ("00000000,00000000\n", set()),
            ("1\n", {0}),
            ("f\n", {0, 1, 2, 3}),
            ("00000028", {3, 5}),
            ("FF", set(range(8))),
            ("ff,0000010f", {0, 1, 2, 3, 8} | set(range(32, 40))),
            ("80000000,00000000,00000001", {0, 95}),
        ],
    )
    def test_bitmap(self, text, cpus):
        assert parse_cpumask(text) == cpus

    def test_the_mask_of_the_widest_kernel(self):
        words = ["00000000"] * 255 + ["00000101"]  # NR_CPUS of 8192
        assert parse_cpumask(",".join(words)) == {0, 8}

    @pytest.mark.parametrize(
        "text",
        ["", "\n", ",", "0-3", "g", "0x3", "-1", "+1", "f_f", "f f", "f\nf", "٣", "f\0", "\udcff", "é"],
        ids=ascii,
    )
    def test_anything_else_is_refused(self, text):
        with pytest.raises(ValueError):
            parse_cpumask(text)

    def test_a_bitmap_wider_than_any_kernel_is_refused(self):
        with pytest.raises(ValueError, match="not a bitmap of CPUs"):
            parse_cpumask("f" * 16385)


class TestFormatCpulist:
    """A set is written as the kernel writes it: ascending, ranges of two or more with a dash."""

    @pytest.mark.parametrize(
        ("cpus", "text"),
        [
            ((), ""),
            ((3,), "3"),
            ((0, 1), "0-1"),
            ((10, 2, 0, 1), "0-2,10"),
            ((4, 6, 8), "4,6,8"),
            ((0, 1, 2, 88, 89, 1151), "0-2,88-89,1151"),
        ],
    )
    def test_text(self, cpus, text):
        assert format_cpulist(frozenset(cpus)) == text

    @pytest.mark.parametrize("cpus", [{0}, {1, 2, 4}, {5, 7}, set(range(0, 1152, 3)), {MAX_CPU}], ids=len)
    def test_reading_it_gives_the_set_back(self, cpus):
        assert parse_cpulist(format_cpulist(frozenset(cpus))) == cpus

    @pytest.mark.parametrize("cpus", [{0}, {31, 32}, {5, 7, 64}, set(range(0, 1152, 3))], ids=len)
    def test_list_and_bitmap_of_one_set_agree(self, cpus):
        assert parse_cpumask(bitmap(cpus)) == parse_cpulist(collapse(cpus)) == cpus
