"""The plan: facts and options to numbers. Every expected number is worked out by hand."""

from __future__ import annotations

import pytest

from tflaunch.cgroup import Quota
from tflaunch.cpus import Cpus
from tflaunch.machine import Machine
from tflaunch.options import parse_options
from tflaunch.policy import make_limit, make_plan

SOURCE = "/sys/fs/cgroup/cpu.max: a quota and a period"
NO_QUOTA = Quota(2, None, None, (), is_hidden=False)


def machine_of(allowed, threads_per_core=1):
    """CPUs 0 to allowed - 1, those of a core beside each other."""
    cpus = range(allowed)
    cores = [frozenset(cpus[first : first + threads_per_core]) for first in cpus[::threads_per_core]]
    return Machine(frozenset(range(64)), frozenset(cpus), tuple(cores))


def quota_of(microseconds, period=100_000, version=2):
    return Quota(version, Cpus(microseconds, period), SOURCE, (), is_hidden=False)


def plan_for(machine, quota, **said):
    """limit, plan and problems for the options written as a user writes them."""
    options = parse_options(said, {})
    limit, limit_problems = make_limit(machine, quota, options)
    plan, plan_problems = make_plan(machine, limit, options)
    return limit, plan, (*limit_problems, *plan_problems)


def threads(machine, quota, **said):
    return plan_for(machine, quota, **said)[1].intra_op.value


def codes(problems):
    return [problem.code for problem in problems]


# quota and period in µs, and the threads when it is rounded down, to the nearest and up
QUOTAS = [
    pytest.param(100, 100_000, 1, 1, 1, id="0.001"),
    pytest.param(10_000, 100_000, 1, 1, 1, id="0.1"),
    pytest.param(50_000, 100_000, 1, 1, 1, id="0.5"),
    pytest.param(99_999, 100_000, 1, 1, 1, id="just-below-1"),
    pytest.param(100_000, 100_000, 1, 1, 1, id="1"),
    pytest.param(50_000, 50_000, 1, 1, 1, id="1-of-a-shorter-period"),
    pytest.param(100_001, 100_000, 1, 1, 2, id="just-above-1"),
    pytest.param(125_000, 100_000, 1, 1, 2, id="1.25"),
    pytest.param(149_999, 100_000, 1, 1, 2, id="just-below-1.5"),
    pytest.param(150_000, 100_000, 1, 2, 2, id="1.5"),
    pytest.param(15_000, 10_000, 1, 2, 2, id="1.5-of-a-shorter-period"),
    pytest.param(175_000, 100_000, 1, 2, 2, id="1.75"),
    pytest.param(200_000, 100_000, 2, 2, 2, id="2"),
    pytest.param(250_000, 100_000, 2, 3, 3, id="2.5"),
    pytest.param(1_000_000, 300_000, 3, 3, 4, id="10-thirds"),
    pytest.param(749_999, 100_000, 7, 7, 8, id="just-below-7.5"),
    pytest.param(750_000, 100_000, 7, 8, 8, id="7.5"),
    pytest.param(799_999, 100_000, 7, 8, 8, id="just-below-8"),
    pytest.param(800_000, 100_000, 8, 8, 8, id="8-all-allowed"),
    pytest.param(6_400_000, 100_000, 8, 8, 8, id="64-more-than-allowed"),
]


@pytest.mark.parametrize(("quota", "period", "down", "nearest", "up"), QUOTAS)
class TestRoundingOfTheQuota:
    """A quota becomes whole threads as --rounding says, at least one, on 8 allowed CPUs of 8 cores."""

    def test_the_word_decides(self, quota, period, down, nearest, up):
        for rounding, expected in (("floor", down), ("nearest", nearest), ("ceil", up)):
            found = threads(machine_of(8), quota_of(quota, period), rounding=rounding)
            assert (rounding, found) == (rounding, expected)

    def test_latency_mode_leaves_one_to_the_inter_op_thread(self, quota, period, down, nearest, up):
        for rounding, expected in (("floor", down), ("nearest", nearest), ("ceil", up), ("auto", down)):
            found = threads(machine_of(8), quota_of(quota, period), mode="latency", rounding=rounding)
            assert (rounding, found) == (rounding, max(expected - 1, 1))

    def test_auto_is_to_the_nearest(self, quota, period, down, nearest, up):
        machine = machine_of(8)
        assert threads(machine, quota_of(quota, period)) == nearest
        assert threads(machine, quota_of(quota, period), rounding="auto") == nearest
        assert threads(machine, quota_of(quota, period), mode="throughput") == nearest

    def test_the_other_pools_follow_intra_op_and_cpu_count_is_rounded_up(self, quota, period, down, nearest, up):
        for rounding in ("floor", "nearest", "ceil"):
            plan = plan_for(machine_of(8), quota_of(quota, period), rounding=rounding)[1]
            assert plan.omp.value == plan.blas.value == plan.intra_op.value
            assert plan.inter_op.value == 2
            assert plan.kmp_blocktime.value == 1
            assert plan.python_cpu_count.value == up


class TestBound:
    """The limit is the least of quota and allowed CPUs, and says which of them it is and where it was read."""

    @pytest.mark.parametrize(
        ("allowed", "quota", "bound_by", "cpus", "words"),
        [
            pytest.param(8, quota_of(150_000), "quota", "1.5", ["cgroup v2 quota", SOURCE], id="v2-quota"),
            pytest.param(8, quota_of(150_000, version=1), "quota", "1.5", ["cgroup v1 quota", SOURCE], id="v1-quota"),
            pytest.param(8, quota_of(799_999), "quota", "8.000", ["cgroup v2 quota"], id="just-below-the-allowed"),
            pytest.param(2, quota_of(200_000), "affinity", "2", ["allowed CPUs", "quota of 2", SOURCE], id="equal"),
            pytest.param(2, quota_of(350_000), "affinity", "2", ["allowed CPUs", "quota of 3.5", SOURCE], id="above"),
            pytest.param(4, NO_QUOTA, "affinity", "4", ["allowed CPUs", "cgroup v2 sets no quota"], id="no-quota"),
            pytest.param(
                4, NO_QUOTA._replace(version=1), "affinity", "4", ["cgroup v1 sets no quota"], id="no-quota-v1"
            ),
            pytest.param(
                4,
                NO_QUOTA._replace(version=None),
                "affinity",
                "4",
                ["allowed CPUs", "no cgroup with the cpu controller is visible"],
                id="no-controller",
            ),
        ],
    )
    def test_limit(self, allowed, quota, bound_by, cpus, words):
        limit, _, problems = plan_for(machine_of(allowed), quota)
        assert limit.bound_by == bound_by
        assert float(str(limit.cpus)) == pytest.approx(float(cpus))
        for word in words:
            assert word in limit.reason
        assert problems == ()

    def test_the_limit_is_exact(self):
        limit, _, _ = plan_for(machine_of(8), quota_of(1, 3))
        assert limit.cpus.numerator * 3 == limit.cpus.denominator


class TestCores:
    """Intra-op is at most the physical cores that the allowed CPUs belong to."""

    @pytest.mark.parametrize(
        ("allowed", "threads_per_core", "quota", "intra_op", "cpu_count"),
        [
            pytest.param(8, 1, NO_QUOTA, 8, 8, id="no-smt"),
            pytest.param(8, 2, NO_QUOTA, 4, 8, id="smt-2"),
            pytest.param(8, 4, NO_QUOTA, 2, 8, id="smt-4"),
            pytest.param(2, 2, NO_QUOTA, 1, 2, id="both-threads-of-one-core"),
            pytest.param(3, 2, NO_QUOTA, 2, 3, id="a-core-and-a-half"),
            pytest.param(8, 2, quota_of(300_000), 3, 3, id="quota-below-the-cores"),
            pytest.param(8, 2, quota_of(400_000), 4, 4, id="quota-equal-to-the-cores"),
            pytest.param(8, 2, quota_of(450_000), 4, 5, id="quota-just-above-the-cores"),
            pytest.param(8, 2, quota_of(700_000), 4, 7, id="quota-above-the-cores"),
            pytest.param(2, 2, quota_of(150_000), 1, 2, id="quota-of-1.5-in-one-core"),
            pytest.param(1, 1, NO_QUOTA, 1, 1, id="one-cpu"),
        ],
    )
    def test_cores(self, allowed, threads_per_core, quota, intra_op, cpu_count):
        _, plan, problems = plan_for(machine_of(allowed, threads_per_core), quota)
        assert (plan.intra_op.value, plan.omp.value, plan.blas.value) == (intra_op, intra_op, intra_op)
        assert plan.python_cpu_count.value == cpu_count
        assert problems == ()

    def test_the_reason_names_cores_and_limit(self):
        reason = plan_for(machine_of(8, 2), quota_of(650_000))[1].intra_op.reason
        assert "4 physical cores" in reason
        assert "6.5 CPUs" in reason


class TestReasons:
    """A number says in words where it comes from."""

    @pytest.mark.parametrize(
        ("quota", "said", "words"),
        [
            pytest.param(NO_QUOTA, {}, ["each allowed CPU"], id="no-quota"),
            pytest.param(quota_of(50_000), {}, ["quota of 0.5 CPUs", "below one", "at least one"], id="below-one"),
            pytest.param(quota_of(50_000), {"rounding": "ceil"}, ["quota of 0.5 CPUs", "below one"], id="below-one-up"),
            pytest.param(quota_of(200_000), {}, ["quota of 2 CPUs"], id="whole"),
            pytest.param(quota_of(150_000), {}, ["quota of 1.5 CPUs", "rounded to the nearest"], id="auto"),
            pytest.param(
                quota_of(250_000),
                {"mode": "latency"},
                ["quota of 2.5 CPUs", "rounded down", "less one", "inter-op", "latency mode"],
                id="latency",
            ),
            pytest.param(quota_of(150_000), {"rounding": "floor"}, ["rounded down", "--rounding floor"], id="floor"),
            pytest.param(
                quota_of(150_000), {"rounding": "nearest"}, ["to the nearest", "--rounding nearest"], id="nearest"
            ),
            pytest.param(quota_of(150_000), {"rounding": "ceil"}, ["rounded up", "--rounding ceil"], id="ceil"),
            pytest.param(NO_QUOTA, {"cpus": "2.5"}, ["limit of 2.5 CPUs", "to the nearest"], id="said-limit"),
            pytest.param(NO_QUOTA, {"intra_op": "3"}, ["--intra-op 3"], id="said-value"),
        ],
    )
    def test_intra_op(self, quota, said, words):
        reason = plan_for(machine_of(8), quota, **said)[1].intra_op.reason
        for word in words:
            assert word in reason

    def test_a_whole_number_says_nothing_of_rounding(self):
        reason = plan_for(machine_of(8), quota_of(200_000), rounding="ceil")[1].intra_op.reason
        assert "rounded" not in reason

    def test_a_variable_is_named_as_it_was_set(self):
        options = parse_options({}, {"TFLAUNCH_ROUNDING": "ceil"})
        limit, _ = make_limit(machine_of(8), quota_of(150_000), options)
        assert "TFLAUNCH_ROUNDING=ceil" in make_plan(machine_of(8), limit, options)[0].intra_op.reason

    @pytest.mark.parametrize("period", [1, 50_000, 100_000], ids=str)
    def test_one_cpu_is_singular(self, period):
        _, plan, _ = plan_for(machine_of(8), quota_of(period, period))
        assert "1 CPUs" not in plan.intra_op.reason
        assert "1 CPUs" not in plan.python_cpu_count.reason
        assert "1 CPU" in plan.intra_op.reason

    def test_every_number_has_a_reason(self):
        for said in ({}, {"cpus": "1"}, {"intra_op": "1", "inter_op": "1", "omp": "1"}):
            plan = plan_for(machine_of(2), NO_QUOTA, **said)[1]
            assert all(number.reason.strip() for number in plan)

    def test_inter_op_says_that_one_can_hang(self):
        assert "hang" in plan_for(machine_of(1), NO_QUOTA)[1].inter_op.reason

    def test_inter_op_of_latency_mode_says_who_needs_more(self):
        inter_op = plan_for(machine_of(8), NO_QUOTA, mode="latency")[1].inter_op
        assert inter_op.value == 1
        assert "calls Python" in inter_op.reason


class TestCpusOption:
    """--cpus takes the place of quota and allowed CPUs, never above the allowed ones."""

    @pytest.mark.parametrize(
        ("said", "quota", "intra_op", "cpu_count", "problem"),
        [
            pytest.param("2", NO_QUOTA, 2, 2, [], id="whole"),
            pytest.param("1500m", NO_QUOTA, 2, 2, [], id="kubernetes-quantity"),
            pytest.param("0.25", NO_QUOTA, 1, 1, [], id="below-one"),
            pytest.param("0.000000001", NO_QUOTA, 1, 1, [], id="next-to-nothing"),
            pytest.param("1", quota_of(300_000), 1, 1, [], id="below-the-quota"),
            pytest.param("3", quota_of(300_000), 3, 3, [], id="equal-to-the-quota"),
            pytest.param("3.4", quota_of(300_000), 3, 4, ["cpus_above_quota"], id="above-the-quota"),
            pytest.param("8", quota_of(300_000), 8, 8, ["cpus_above_quota"], id="above-the-quota-all-allowed"),
            pytest.param("8", NO_QUOTA, 8, 8, [], id="all-allowed"),
            pytest.param("8.001", NO_QUOTA, 8, 8, ["cpus_above_allowed"], id="just-above-the-allowed"),
            pytest.param("64", NO_QUOTA, 8, 8, ["cpus_above_allowed"], id="above-the-allowed"),
            pytest.param("64", quota_of(300_000), 8, 8, ["cpus_above_allowed"], id="above-the-allowed-and-the-quota"),
            pytest.param("1500", NO_QUOTA, 8, 8, ["cpus_above_allowed"], id="thousandths-without-m"),
            pytest.param("99999999999999999999", NO_QUOTA, 8, 8, ["cpus_above_allowed"], id="absurd"),
        ],
    )
    def test_numbers(self, said, quota, intra_op, cpu_count, problem):
        limit, plan, problems = plan_for(machine_of(8), quota, cpus=said)
        assert (plan.intra_op.value, plan.python_cpu_count.value) == (intra_op, cpu_count)
        assert limit.bound_by == "option"
        assert f"--cpus {said}" in limit.reason
        assert codes(problems) == problem

    def test_above_the_quota_warns_with_both_numbers(self):
        message = plan_for(machine_of(8), quota_of(150_000), cpus="4")[2][0].message
        for word in ("--cpus 4", "quota of 1.5", "kernel"):
            assert word in message

    def test_above_the_allowed_is_cut_and_warns_with_both_numbers(self):
        limit, _, problems = plan_for(machine_of(8), NO_QUOTA, cpus="64")
        assert "cut to the allowed CPUs" in limit.reason
        assert "--cpus 64" in problems[0].message
        assert "8 allowed CPUs" in problems[0].message
        assert "64m" not in problems[0].message

    def test_the_downward_api_in_thousandths_is_recognized(self):
        """A manifest with `divisor: 1m` feeds 1500 for 1.5 CPUs, without the m."""
        options = parse_options({}, {"TFLAUNCH_CPUS": "1500"})
        _, problems = make_limit(machine_of(8), NO_QUOTA, options)
        assert "TFLAUNCH_CPUS=1500" in problems[0].message
        assert "write 1500m" in problems[0].message

    def test_one_allowed_cpu_is_singular(self):
        assert "1 allowed CPU," in plan_for(machine_of(1), NO_QUOTA, cpus="2")[2][0].message

    def test_latency_mode_takes_one_of_the_cores(self):
        reason = plan_for(machine_of(8, 2), NO_QUOTA, mode="latency")[1].intra_op.reason
        assert threads(machine_of(8, 2), NO_QUOTA, mode="latency") == 3
        assert "4 physical cores" in reason and "less one" in reason

    def test_cores_still_bound_it(self):
        assert threads(machine_of(8, 2), NO_QUOTA, cpus="6") == 4

    def test_rounding_and_mode_hold_for_it(self):
        assert threads(machine_of(8), NO_QUOTA, cpus="3500m", mode="latency") == 2
        assert threads(machine_of(8), NO_QUOTA, cpus="2.1", rounding="ceil") == 3


class TestExplicitValues:
    """--intra-op, --inter-op and --omp are taken as they are; only intra-op is held to the allowed CPUs."""

    def test_intra_op_above_the_quota_and_the_cores_is_taken(self):
        limit, plan, problems = plan_for(machine_of(8, 2), quota_of(100_000), intra_op="7")
        assert (plan.intra_op.value, plan.omp.value, plan.blas.value) == (7, 7, 7)
        assert plan.intra_op.is_explicit
        assert not plan.omp.is_explicit
        assert limit.bound_by == "quota"
        assert plan.python_cpu_count.value == 1
        assert problems == ()

    def test_intra_op_above_the_allowed_cpus_is_cut_with_a_warning(self):
        _, plan, problems = plan_for(machine_of(4, 2), NO_QUOTA, intra_op="5")
        assert plan.intra_op.value == 4
        assert plan.intra_op.is_explicit
        assert "--intra-op 5" in plan.intra_op.reason
        assert "cut to the allowed CPUs" in plan.intra_op.reason
        assert codes(problems) == ["intra_op_above_allowed"]
        assert "--intra-op 5" in problems[0].message
        assert "4 allowed CPUs" in problems[0].message

    def test_intra_op_equal_to_the_allowed_cpus_is_taken_in_silence(self):
        _, plan, problems = plan_for(machine_of(4, 2), NO_QUOTA, intra_op="4")
        assert (plan.intra_op.value, problems) == (4, ())

    @pytest.mark.parametrize("value", [1, 2, 3, 64, 1024])
    def test_inter_op(self, value):
        _, plan, _ = plan_for(machine_of(2), NO_QUOTA, inter_op=str(value))
        assert (plan.inter_op.value, plan.inter_op.is_explicit) == (value, True)
        assert f"--inter-op {value}" in plan.inter_op.reason

    @pytest.mark.parametrize("value", [1, 3, 64])
    def test_omp_sizes_blas_too_and_leaves_intra_op(self, value):
        _, plan, _ = plan_for(machine_of(2), NO_QUOTA, omp=str(value))
        assert (plan.omp.value, plan.omp.is_explicit) == (value, True)
        assert (plan.blas.value, plan.blas.is_explicit) == (value, True)
        assert plan.intra_op.value == 2
        assert f"--omp {value}" in plan.omp.reason


class TestHiddenLimit:
    """A group that cannot be seen may have a quota that no file shows, so the user is asked to say it."""

    HIDDEN = NO_QUOTA._replace(is_hidden=True)

    def test_warning_says_what_to_do(self):
        limit, _, problems = plan_for(machine_of(4), self.HIDDEN)
        assert limit.bound_by == "affinity"
        assert codes(problems) == ["limit_hidden"]
        assert "--cpus" in problems[0].message
        assert "TFLAUNCH_CPUS" in problems[0].message

    def test_no_warning_once_the_limit_is_said(self):
        assert plan_for(machine_of(4), self.HIDDEN, cpus="2")[2] == ()

    def test_no_warning_where_a_quota_was_found(self):
        assert plan_for(machine_of(4), quota_of(150_000)._replace(is_hidden=True))[2] == ()
