"""Facts and options to a plan: pure, and the only place where a number is decided.

The measurements behind the rules are those of bench/policy.py, on 2 CPUs with tensorflow-cpu 2.21.0: regret is the
distance from the best setting that was measured, over ten programs and six limits. docs/policy.md has the tables.
"""

from __future__ import annotations

from tflaunch._namedtuple import NamedTuple
from tflaunch.cgroup import Quota
from tflaunch.cpus import Cpus
from tflaunch.files import Problem
from tflaunch.machine import Machine
from tflaunch.options import Options

# A second thread gave +17 % to +40 % in training from 1.5 CPUs on and cost 5 % to 19 % at one; four had a higher mean
# regret. One can hang: a tf.py_function that calls a tf.function inside a tf.function waits for ever (bench/limits.py;
# tensorflow issues 38969, 48418, 39006). The graphs that are served call no Python, and their p99 at 1 CPU was
# 1.2 to 2.1 times that with the second thread.
INTER_OP_THREADS = {"throughput": 2, "latency": 1}

# Milliseconds that an OpenMP worker spins after a region (bench/blocktime.py: intel-tensorflow 2.14). The runtime's own
# default of 200 burns the quota while it computes nothing: 1 gave up to +50 % at 1.5 CPUs and +14 % at 2, where the six
# programs run as well as with 0, or better. Only at 1.5 CPUs, with two threads, 0 is better, by up to 14 %.
KMP_BLOCKTIME_MS = 1

# At a quota of 1.5 CPUs the second intra-op thread gave +41 % on a matrix product and +13 % on a CNN, and cost 9 % to
# 27 % in programs of small operations. To the nearest: mean regret 5.0 %, worst 32.5 %, and slower by more than the
# spread than nothing that other tools choose there. Rounded down: mean 4.6 %, worst 35.4 %, and on a host of 2 CPUs up
# to 29 % slower than TensorFlow's default. In latency mode a thread above the limit raised the p99 of large
# convolutions from 8.6 to 14 ms.
AUTO_ROUNDING = {"throughput": "nearest", "latency": "floor"}

INTER_OP_REASONS = {
    "throughput": "independent operations overlap, and 1 can hang",
    "latency": "a request runs one operation at a time (latency mode); a graph that calls Python may need 2",
}


class Limit(NamedTuple):
    """CPUs this process can use at the same time, and what bounds them: "quota", "affinity" or "option"."""

    quota: Quota
    cpus: Cpus
    bound_by: str
    reason: str


class Number(NamedTuple):
    """A planned number. is_explicit: the user gave it as an option, so it stands above exported variables."""

    value: int
    reason: str
    is_explicit: bool = False


class Plan(NamedTuple):
    """Threads and counts; kmp_blocktime in milliseconds."""

    intra_op: Number
    inter_op: Number
    omp: Number
    blas: Number
    kmp_blocktime: Number
    python_cpu_count: Number


def make_limit(machine: Machine, quota: Quota, options: Options) -> tuple[Limit, tuple[Problem, ...]]:
    """The limit: what the user said, else the quota, neither ever above the allowed CPUs."""
    allowed = Cpus(len(machine.allowed))
    if options.cpus is not None:
        said = options.origin("cpus")
        if allowed.is_less_than(options.cpus):
            message = f"{said} is above the {_count(allowed, 'allowed CPU')}, which count"
            if options.cpus.denominator == 1 and options.cpus.numerator % 100 == 0:
                message += f"; if it is meant in thousandths, write {options.cpus}m"
            return Limit(quota, allowed, "option", f"{said}, cut to the allowed CPUs"), (
                Problem("cpus_above_allowed", message),
            )
        problems: tuple[Problem, ...] = ()
        if quota.cpus is not None and quota.cpus.is_less_than(options.cpus):
            problems = (
                Problem(
                    "cpus_above_quota",
                    f"{said} is above the quota of {_count(quota.cpus, 'CPU')}, which the kernel enforces",
                ),
            )
        return Limit(quota, options.cpus, "option", f"{said}"), problems
    hidden: tuple[Problem, ...] = ()
    if machine.allowed - machine.online and quota.cpus is None:
        hidden = (
            Problem(
                "limit_hidden",
                f"{len(machine.online)} CPUs are shown as online and {len(machine.allowed)} are allowed, some of them "
                "not among these: /sys is made for this container, which may have a limit that no file shows; say it "
                "with --cpus N or TFLAUNCH_CPUS",
            ),
        )
    if quota.is_hidden and quota.cpus is None:
        hidden = (
            Problem(
                "limit_hidden",
                "the cgroup of this process is outside what is mounted here, so a CPU limit may be in force that no "
                "file shows; say it with --cpus N or TFLAUNCH_CPUS",
            ),
        )
    if quota.cpus is not None and quota.cpus.is_less_than(allowed):
        return Limit(quota, quota.cpus, "quota", f"cgroup v{quota.version} quota, {quota.source}"), hidden
    if quota.cpus is not None:
        reason = f"the allowed CPUs; the quota of {quota.cpus} is not below them ({quota.source})"
    elif quota.version is None:
        reason = "the allowed CPUs; no cgroup with the cpu controller is visible"
    else:
        reason = f"the allowed CPUs; cgroup v{quota.version} sets no quota"
    return Limit(quota, allowed, "affinity", reason), hidden


def make_plan(machine: Machine, limit: Limit, options: Options) -> tuple[Plan, tuple[Problem, ...]]:
    """The plan, and what the user should know of it. Every number is at least 1; intra-op at most the allowed CPUs."""
    allowed = len(machine.allowed)
    problems: list[Problem] = []
    intra_op = threads_for(machine, limit, options)
    omp = Number(intra_op.value, "as intra-op: a parallel region uses the same CPUs")
    if options.intra_op is not None and options.intra_op > allowed:
        problems.append(
            Problem(
                "intra_op_above_allowed",
                f"{options.origin('intra_op')} is above the {_count(Cpus(allowed), 'allowed CPU')}, which count",
            )
        )
    if options.omp is not None:
        omp = Number(options.omp, f"{options.origin('omp')}", is_explicit=True)
    inter_op = Number(INTER_OP_THREADS[options.mode], INTER_OP_REASONS[options.mode])
    if options.inter_op is not None:
        inter_op = Number(options.inter_op, f"{options.origin('inter_op')}", is_explicit=True)
    return (
        Plan(
            intra_op=intra_op,
            inter_op=inter_op,
            omp=omp,
            # On 2 CPUs two threads do 1.9 times the products of NumPy alone; in turns with training, 0.83 times.
            blas=Number(omp.value, "as OMP: BLAS calls are parallel regions", is_explicit=omp.is_explicit),
            kmp_blocktime=Number(KMP_BLOCKTIME_MS, "ms that idle OpenMP threads spin; the default of 200 burns quota"),
            python_cpu_count=Number(
                limit.cpus.ceil(), f"the limit of {_count(limit.cpus, 'CPU')} as whole CPUs, rounded up"
            ),
        ),
        tuple(problems),
    )


def threads_for(machine: Machine, limit: Limit, options: Options) -> Number:
    """Intra-op threads: the limit as a whole number, but no more than the physical cores; in latency mode one less.

    Two hardware threads of a core share its arithmetic units, so a second thread on a core adds little to a
    computation and splits it finer (the vendors' guides; not measured). In latency mode the pools together have no more
    threads than the limit, from 2 CPUs on: mean regret of p99 2.7 %, and 5.8 % without the one less.
    """
    allowed = len(machine.allowed)
    if options.intra_op is not None:
        said = f"{options.origin('intra_op')}"
        if options.intra_op > allowed:
            return Number(allowed, f"{said}, cut to the allowed CPUs", is_explicit=True)
        return Number(options.intra_op, said, is_explicit=True)
    cores = len(machine.cores)
    rounding = AUTO_ROUNDING[options.mode] if options.rounding == "auto" else options.rounding
    rounded = round_cpus(limit.cpus, rounding)
    threads = min(rounded, cores)
    reason = _reason_of_rounding(limit, options, rounding)
    if rounded > cores:
        of_cores = f"one for each of {_count(Cpus(cores), 'physical core')}, whose threads share units"
        reason = f"{of_cores}; the limit is {_count(limit.cpus, 'CPU')}"
    if options.mode == "latency" and threads > 1:
        return Number(threads - 1, f"{reason}; less one for the inter-op thread (latency mode)")
    return Number(threads, reason)


def _reason_of_rounding(limit: Limit, options: Options, rounding: str) -> str:
    """Why the limit is so many threads, where there are cores enough."""
    if limit.bound_by == "affinity":
        return "one for each allowed CPU"
    what = f"the {'quota' if limit.bound_by == 'quota' else 'limit'} of {_count(limit.cpus, 'CPU')}"
    if limit.cpus.is_less_than(Cpus(1)):
        return f"{what} is below one; there is at least one thread"
    if limit.cpus.numerator % limit.cpus.denominator:
        how = {"floor": "rounded down", "nearest": "rounded to the nearest", "ceil": "rounded up"}[rounding]
        return f"{what}, {how}" + ("" if options.rounding == "auto" else f" ({options.origin('rounding')})")
    return what


def round_cpus(cpus: Cpus, rounding: str) -> int:
    """A limit as a whole number of threads, at least 1; rounding is "floor", "nearest" (halves up) or "ceil"."""
    rounded = {"floor": cpus.floor, "nearest": cpus.nearest, "ceil": cpus.ceil}[rounding]()
    return max(rounded, 1)


def _count(number: Cpus, noun: str) -> str:
    return f"{number} {noun}{'' if str(number) == '1' else 's'}"
