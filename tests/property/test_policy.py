"""The plan for any mask, any quota and any options, against the rule worked out with exact fractions."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from math import ceil, floor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tflaunch.cgroup import Quota
from tflaunch.cpus import Cpus
from tflaunch.machine import Machine
from tflaunch.options import parse_options
from tflaunch.policy import make_limit, make_plan

EXAMPLES = settings(deadline=None, max_examples=100)

MODES = ("throughput", "latency")
ROUNDINGS = ("auto", "floor", "nearest", "ceil")
ROUND = {"floor": floor, "nearest": lambda cpus: floor(cpus + Fraction(1, 2)), "ceil": ceil}
AUTO = {"throughput": "nearest", "latency": "floor"}
INTER_OP = {"throughput": 2, "latency": 1}
EVERY_WAY = pytest.mark.parametrize(("mode", "rounding"), list(product(MODES, ROUNDINGS)))

POSITIVE = st.one_of(st.integers(1, 20), st.integers(1, 10**6), st.integers(1, 10**20 - 1))
FRACTIONS = st.one_of(
    st.builds(Fraction, POSITIVE, POSITIVE),
    st.integers(1, 4000).map(lambda hundredths: Fraction(hundredths, 100)),  # around the CPUs of the machines below
)
# --cpus as people write it: a decimal number.
DECIMALS = st.one_of(st.integers(1, 10**6), st.integers(1, 40_000)).map(lambda n: Fraction(n, 1000))


@st.composite
def machines(draw):
    """Any mask, and any of its CPUs on one core with any others."""
    allowed = draw(st.frozensets(st.integers(0, 65535), min_size=1, max_size=40))
    cores: dict[int, set[int]] = {}
    for cpu in allowed:
        cores.setdefault(draw(st.integers(0, 20)), set()).add(cpu)
    return Machine(allowed, allowed, tuple(frozenset(core) for core in cores.values()))


def plan_for(machine, quota, **said):
    options = parse_options(said, {})
    cpus = None if quota is None else Cpus(quota.numerator, quota.denominator)
    limit, _ = make_limit(machine, Quota(2, cpus, "cpu.max", (), is_hidden=False), options)
    return limit, make_plan(machine, limit, options)[0]


def intra_op(mode, rounding, cpus, cores):
    rounded = ROUND[AUTO[mode] if rounding == "auto" else rounding](cpus)
    threads = min(max(rounded, 1), cores)
    return max(threads - 1, 1) if mode == "latency" else threads


def decimal(cpus):
    """The exact decimal text of a number of thousandths."""
    thousandths = cpus * 1000
    assert thousandths.denominator == 1
    return f"{thousandths.numerator // 1000}.{thousandths.numerator % 1000:03d}"


def values(plan):
    return (plan.intra_op.value, plan.omp.value, plan.blas.value, plan.python_cpu_count.value)


@EVERY_WAY
class TestPlan:
    """Rounded as asked, at least one, at most the cores; never fewer threads for more CPUs."""

    @EXAMPLES
    @given(machine=machines(), quota=st.none() | FRACTIONS)
    def test_is_the_rule(self, mode, rounding, machine, quota):
        limit, plan = plan_for(machine, quota, mode=mode, rounding=rounding)
        allowed, cores = len(machine.allowed), len(machine.cores)
        cpus = Fraction(allowed) if quota is None else min(quota, Fraction(allowed))
        threads = intra_op(mode, rounding, cpus, cores)
        assert values(plan) == (threads, threads, threads, ceil(cpus))
        assert plan.inter_op.value == INTER_OP[mode]
        assert Fraction(limit.cpus.numerator, limit.cpus.denominator) == cpus
        assert limit.bound_by == ("quota" if quota is not None and quota < allowed else "affinity")

    @EXAMPLES
    @given(machine=machines(), quotas=st.tuples(FRACTIONS, FRACTIONS))
    def test_more_quota_is_never_fewer_threads(self, mode, rounding, machine, quotas):
        less, more = (values(plan_for(machine, quota, mode=mode, rounding=rounding)[1]) for quota in sorted(quotas))
        none = values(plan_for(machine, None, mode=mode, rounding=rounding)[1])
        assert all(a <= b <= c for a, b, c in zip(less, more, none))

    @EXAMPLES
    @given(machine=machines(), quota=st.none() | FRACTIONS, cpus=st.tuples(DECIMALS, DECIMALS))
    def test_more_cpus_said_is_never_fewer_threads(self, mode, rounding, machine, quota, cpus):
        less, more = (
            values(plan_for(machine, quota, cpus=decimal(each), mode=mode, rounding=rounding)[1])
            for each in sorted(cpus)
        )
        assert all(a <= b for a, b in zip(less, more))

    @EXAMPLES
    @given(machine=machines(), quota=st.none() | FRACTIONS, cpus=DECIMALS)
    def test_what_is_said_takes_the_place_of_the_quota(self, mode, rounding, machine, quota, cpus):
        limit, plan = plan_for(machine, quota, cpus=decimal(cpus), mode=mode, rounding=rounding)
        allowed = Fraction(len(machine.allowed))
        assert plan.intra_op.value == intra_op(mode, rounding, min(cpus, allowed), len(machine.cores))
        assert Fraction(limit.cpus.numerator, limit.cpus.denominator) == min(cpus, allowed)
        assert limit.bound_by == "option"


class TestExplicitValues:
    """What the user says is taken, intra-op up to the allowed CPUs."""

    @EXAMPLES
    @given(
        machine=machines(),
        quota=st.none() | FRACTIONS,
        intra_op=st.integers(1, 1024),
        inter_op=st.integers(1, 1024),
        omp=st.integers(1, 1024),
    )
    def test_values(self, machine, quota, intra_op, inter_op, omp):
        _, plan = plan_for(machine, quota, intra_op=str(intra_op), inter_op=str(inter_op), omp=str(omp))
        assert plan.intra_op.value == min(intra_op, len(machine.allowed))
        assert (plan.inter_op.value, plan.omp.value, plan.blas.value) == (inter_op, omp, omp)
