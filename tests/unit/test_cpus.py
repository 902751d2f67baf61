from __future__ import annotations

import math
import re
from fractions import Fraction

import pytest

from tflaunch.cpus import Cpus, least, parse_cpus

# Quotas and periods in µs as container engines write them, and odd ones.
PAIRS = [
    (25000, 100000),
    (50000, 100000),
    (100000, 100000),
    (150000, 100000),
    (220000, 100000),
    (249999, 100000),
    (250000, 100000),
    (850000, 100000),
    (100000, 300000),
    (20000, 5000),
    (1, 1000000),
    (2**63 - 1, 2**63 - 1),
    (2**63 - 1, 1000),
    (2**63 - 1, 2**63 - 2),  # equal as floating-point numbers, not equal
]


class TestCpus:
    """A number of CPUs is exact, whatever the quota and the period."""

    @pytest.mark.parametrize(
        ("cpus", "floor", "nearest", "ceil"),
        [
            (Cpus(1, 4), 0, 0, 1),
            (Cpus(1, 2), 0, 1, 1),
            (Cpus(1, 3), 0, 0, 1),
            (Cpus(3, 2), 1, 2, 2),
            (Cpus(5, 2), 2, 3, 3),  # halves up, unlike round(2.5)
            (Cpus(11, 5), 2, 2, 3),
            (Cpus(17, 2), 8, 9, 9),
            (Cpus(4), 4, 4, 4),
            (Cpus(20000, 5000), 4, 4, 4),
        ],
        ids=str,
    )
    def test_rounding(self, cpus, floor, nearest, ceil):
        assert (cpus.floor(), cpus.nearest(), cpus.ceil()) == (floor, nearest, ceil)

    @pytest.mark.parametrize(("quota", "period"), PAIRS)
    def test_agrees_with_fractions(self, quota, period):
        cpus, exact = Cpus(quota, period), Fraction(quota, period)
        assert cpus.floor() == math.floor(exact)
        assert cpus.ceil() == math.ceil(exact)
        assert cpus.nearest() == math.floor(exact + Fraction(1, 2))
        assert cpus.as_float() == float(exact)

    @pytest.mark.parametrize("left", PAIRS)
    def test_order_is_exact(self, left):
        for right in PAIRS:
            assert Cpus(*left).is_less_than(Cpus(*right)) == (Fraction(*left) < Fraction(*right))

    def test_the_least_of_several(self):
        numbers = [Cpus(2**63 - 1, 2**63 - 2), Cpus(2**63, 2**63), Cpus(3, 2)]
        assert least(numbers) == Cpus(2**63, 2**63)

    def test_the_first_of_equal_ones_is_kept(self):
        numbers = [Cpus(300000, 100000), Cpus(15000, 5000)]
        assert least(numbers) is numbers[0]


class TestText:
    """A number of CPUs is written as people write it."""

    @pytest.mark.parametrize(
        ("cpus", "text"),
        [
            (Cpus(2), "2"),
            (Cpus(200000, 100000), "2"),
            (Cpus(150000, 100000), "1.5"),
            (Cpus(25000, 100000), "0.25"),
            (Cpus(1, 3), "0.333"),
            (Cpus(2, 3), "0.667"),
            (Cpus(10), "10"),
            (Cpus(1024), "1024"),
            (Cpus(1, 1000), "0.001"),
            (Cpus(1, 10**6), "1e-06"),
        ],
    )
    def test_short(self, cpus, text):
        assert str(cpus) == text

    @pytest.mark.parametrize(
        "cpus", [Cpus(19999, 10000), Cpus(99999, 100000), Cpus(100004, 10000), Cpus(1000 * 10**9 + 1, 10**9)]
    )
    def test_a_fraction_near_a_whole_number_ends_with_a_digit(self, cpus):
        assert re.fullmatch(r"\d+(\.\d*[1-9])?", str(cpus))
        assert float(str(cpus)) == pytest.approx(cpus.as_float(), abs=0.0005)


class TestParseCpus:
    """What a user or Kubernetes writes as a number of CPUs."""

    @pytest.mark.parametrize(
        ("text", "cpus"),
        [
            ("2", Fraction(2)),
            ("1.5", Fraction(3, 2)),
            ("0.25", Fraction(1, 4)),
            ("2.0", Fraction(2)),
            ("0.1", Fraction(1, 10)),  # no binary fraction
            ("1500m", Fraction(3, 2)),
            (".5", Fraction(1, 2)),  # Kubernetes and docker take both
            ("1.", Fraction(1)),
            ("100m", Fraction(1, 10)),
            ("1m", Fraction(1, 1000)),
            ("2500000u", Fraction(5, 2)),
            ("500000000n", Fraction(1, 2)),
            ("1.5m", Fraction(3, 2000)),
            (" 2\n", Fraction(2)),
        ],
    )
    def test_number(self, text, cpus):
        parsed = parse_cpus(text)
        assert Fraction(parsed.numerator, parsed.denominator) == cpus

    @pytest.mark.parametrize(
        "text",
        [
            "",
            " ",
            "0",
            "0.0",
            "0m",
            "-1",
            "+1",
            "m",
            ".",
            ".m",
            "..5",
            "1.5.0",
            "1,5",
            "1 5",
            "1500 m",
            "1500M",
            "1500mm",
            "2k",
            "1e3",
            "0x2",
            "1_000",
            "nan",
            "inf",
            "max",
            "all",
            "٣",
            "2\0",
            "9" * 21,
            "0." + "1" * 5000,
        ],
        ids=lambda text: ascii(text[:12]),
    )
    def test_anything_else_is_refused(self, text):
        with pytest.raises(ValueError, match="not a number of CPUs"):
            parse_cpus(text)
