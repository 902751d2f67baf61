"""A number of CPUs as an exact fraction: 1.5 CPUs are 150000 µs of CPU time in each period of 100000 µs.

`fractions.Fraction` would serve, but importing it makes the start of `tflaunch run` longer by half an interpreter
start (bench/startup.py).
"""

from __future__ import annotations

from tflaunch._namedtuple import NamedTuple
from tflaunch.text import natural

# Kubernetes writes a quantity of CPUs as a decimal number, or with a suffix for thousandths ("1500m") and smaller.
# https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
SUFFIXES = {"m": 10**3, "u": 10**6, "n": 10**9}


class Cpus(NamedTuple):
    """numerator / denominator CPUs, both positive."""

    numerator: int
    denominator: int = 1

    def is_less_than(self, other: Cpus) -> bool:
        """Exact, unlike a comparison of the tuples."""
        return self.numerator * other.denominator < other.numerator * self.denominator

    def floor(self) -> int:
        """Rounded down."""
        return self.numerator // self.denominator

    def ceil(self) -> int:
        """Rounded up."""
        return -(-self.numerator // self.denominator)

    def nearest(self) -> int:
        """The nearest whole number, halves rounded up."""
        return (2 * self.numerator + self.denominator) // (2 * self.denominator)

    def as_float(self) -> float:
        """The nearest float, for output."""
        return self.numerator / self.denominator

    def __str__(self) -> str:
        """ "2", "1.5", "0.333", and "1e-06" where three decimals would show nothing."""
        if self.numerator * 1000 < self.denominator:
            return f"{self.as_float():.0e}"
        thousandths = (2000 * self.numerator + self.denominator) // (2 * self.denominator)
        return f"{thousandths // 1000}.{thousandths % 1000:03}".rstrip("0").rstrip(".")


def least(numbers: list[Cpus]) -> Cpus:
    """The smallest of the numbers, of which there is at least one."""
    smallest = numbers[0]
    for number in numbers[1:]:
        if number.is_less_than(smallest):
            smallest = number
    return smallest


def parse_cpus(text: str) -> Cpus:
    """ "2", "1.5" or a Kubernetes quantity such as "1500m" as CPUs. ValueError when it is none, or not above zero."""
    number, divisor = text.strip(), 1
    if number[-1:] in SUFFIXES:
        number, divisor = number[:-1], SUFFIXES[number[-1:]]
    whole, _, decimals = number.partition(".")
    value = natural(whole + decimals)
    if not value:
        raise ValueError(f"not a number of CPUs: {text!r}")
    return Cpus(value, divisor * 10 ** len(decimals))
