"""A million random and mutated inputs, once by hand: nothing may raise, and every answer must be within its bounds.

    .venv/bin/python bench/fuzz.py [--count 1000000] [--seed N]

tests/property says the same with hypothesis, which finds small failing inputs; this finds rare ones by their number.
The inputs follow from the seed alone. The first that fails is printed as Python, with the check that it failed.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
import traceback
from collections.abc import Callable
from fractions import Fraction
from itertools import accumulate
from math import ceil, floor
from random import Random

from tflaunch import document
from tflaunch.cgroup import Quota, parse_cfs_quota, parse_cpu_max, parse_memberships, parse_mounts, unescape
from tflaunch.cpuinfo import parse_cpuinfo
from tflaunch.cpulist import format_cpulist, parse_cpulist, parse_cpumask
from tflaunch.cpus import Cpus, parse_cpus
from tflaunch.decision import decide
from tflaunch.environment import BINDING_VARIABLES, VARIABLES, apply_changes, make_environment
from tflaunch.errors import UsageError
from tflaunch.files import Files
from tflaunch.machine import Machine, read_details
from tflaunch.options import OPTIONS, Options, parse_options
from tflaunch.policy import Number, Plan, make_limit, make_plan

SECONDS_BETWEEN_PROGRESS = 5.0

# --- Text: what the formats are made of, whole or broken ---

PIECES = (
    *("0", "1", "3", "-1", "+4", "07", "1024", "1025", "100000", "99999999999999999999", "9" * 40, "٣", "²", "1_0"),
    *(
        ",",
        "-",
        ":",
        " ",
        "\t",
        "\n",
        "\r",
        "\\",
        "\\040",
        "\\777",
        "\\09",
        " - ",
        "/",
        "/..",
        "0x4",
        "1e2",
        "4.0",
        ".",
    ),
    *("max", "cpu", "cpu,cpuacct", "cgroup", "cgroup2", "rw", "processor", "physical id", "core id", "processor 3"),
    *("m", "u", "n", "ms", "us", "infinite", "default", "all", "yes", "latency", "ceil", "none", "cores"),
    *("\0", "\x1b[2J", "\x85", "\u202e", "\udcff", "\U000e0041", "é", "Cpus_allowed_list:"),
)


def random_text(random: Random) -> str:
    """Pieces of the formats, or any characters at all."""
    if random.random() < 0.7:
        return "".join(random.choices(PIECES, k=random.randrange(8)))
    return "".join(
        chr(random.choice((random.randrange(128), random.randrange(0x3000)))) for _ in range(random.randrange(12))
    )


def mutated(random: Random, samples: tuple[str, ...]) -> str:
    """A sample with up to four changes, or random text."""
    if random.random() < 0.15:
        return random_text(random)
    text = random.choice(samples)
    for _ in range(random.randrange(5)):
        start = random.randrange(len(text) + 1)
        end = start + random.randrange(6)
        new = random.choice((random.choice(PIECES), text[start:end] * 2, "", chr(random.randrange(256))))
        text = text[:start] + new + text[end:]
    return text


# --- Parsers ---

CPU_LISTS = ("", "0", "0-3", "0-3,8", "0-7,16-23\n", "5,3,1", "1023-1025")
CPU_MASKS = ("f", "ff,0000010f", "00000000,00000003\n", "80000000,00000000,00000000")
CPU_NUMBERS = ("2", "1.5", "1500m", "0.25", "250000u", "7n", " 2 ", "10000000000000000000")
CPU_MAX = ("max 100000\n", "150000 100000\n", "", "1 1000000\n", "max\n")
CFS_QUOTAS = ("-1\n", "150000\n", "", "100000 50000")
MEMBERSHIPS = (
    "8:cpu,cpuacct:/kubepods/pod1\n1:name=systemd:/init.scope\n0::/kubepods/pod1\n",
    "0::/../other\n",
    "0::/\n",
)
MOUNTS = (
    "31 24 0:27 /docker/a /sys/fs/cgroup/cpu,cpuacct ro,nosuid master:11 - cgroup cgroup rw,cpu,cpuacct\n",
    "30 23 0:26 / /sys/fs/cgroup rw,nosuid,nodev shared:4 propagate_from:2 - cgroup2 cgroup2 rw,nsdelegate\n",
    "36 35 98:0 /mnt1 /mnt\\0402 rw,noatime - ext3 /dev/root rw,errors=continue\n30 23 0:26 /.. /c rw - cgroup2 c rw\n",
)
CPUINFO = (
    "processor\t: 0\nphysical id\t: 0\ncore id\t\t: 3\nmodel name\t: Some CPU\nflags\t\t: fpu avx2\n\nprocessor\t: 1\n",
    "processor 0: version = FF,  identification = 1A2B\nprocessor 1: version = FF\n",
    "Processor\t: ARMv7\nprocessor\t: 0\nFeatures\t: asimd\n",
)
# Each with whether it may refuse its text with ValueError.
PARSERS: dict[str, tuple[Callable[[str], object], tuple[str, ...], bool]] = {
    "parse_cpulist": (parse_cpulist, CPU_LISTS, True),
    "parse_cpumask": (parse_cpumask, CPU_MASKS, True),
    "parse_cpus": (parse_cpus, CPU_NUMBERS, True),
    "parse_cpu_max": (parse_cpu_max, CPU_MAX, True),
    "parse_cfs_quota": (lambda text: parse_cfs_quota(text, "100000\n"), CFS_QUOTAS, True),
    "parse_cfs_quota, period": (lambda text: parse_cfs_quota("150000\n", text), CFS_QUOTAS, True),
    "parse_memberships": (parse_memberships, MEMBERSHIPS, False),
    "parse_mounts": (parse_mounts, MOUNTS, False),
    "unescape": (unescape, MOUNTS, False),
    "parse_cpuinfo": (parse_cpuinfo, CPUINFO, False),
}


def make_text(random: Random) -> tuple[str, str]:
    name = random.choice(tuple(PARSERS))
    return name, mutated(random, PARSERS[name][1])


def check_parser(case: tuple[str, str]) -> None:
    name, text = case
    parse, _, may_refuse = PARSERS[name]
    try:
        value = parse(text)
    except ValueError:
        assert may_refuse
        return
    if isinstance(value, Cpus):
        assert value.numerator > 0
        assert value.denominator > 0
        assert str(value)
        assert value.floor() == floor(exact(value))
        assert value.ceil() == ceil(exact(value))
        assert value.nearest() == floor(exact(value) + Fraction(1, 2))
    elif isinstance(value, frozenset):
        assert parse_cpulist(format_cpulist(value)) == value


def exact(cpus: Cpus) -> Fraction:
    return Fraction(cpus.numerator, cpus.denominator)


# --- The plan ---

Facts = tuple[int, int, Cpus, Cpus, str, str]


def random_cpus(random: Random) -> Cpus:
    numerator = random.choice((random.randint(1, 40), random.randint(1, 10**7), random.randint(1, 10**20 - 1)))
    return Cpus(numerator, random.choice((1, 2, 10, 100_000, random.randint(1, 10**6))))


def make_facts(random: Random) -> Facts:
    """Allowed CPUs, threads of a core, two quotas, mode and rounding."""
    allowed = random.choice((1, 2, 3, random.randint(1, 40), random.randint(1, 2000)))
    mode, rounding = random.choice(("throughput", "latency")), random.choice(("auto", "floor", "nearest", "ceil"))
    return allowed, random.choice((1, 2, 4, 8)), random_cpus(random), random_cpus(random), mode, rounding


def check_plan(facts: Facts) -> None:
    allowed, threads_per_core, one, other, mode, rounding = facts
    cpus = range(allowed)
    cores = tuple(frozenset(cpus[first : first + threads_per_core]) for first in cpus[::threads_per_core])
    machine = Machine(frozenset(cpus), frozenset(cpus), cores)
    options = Options(mode=mode, rounding=rounding, origins=(("rounding", rounding),))
    word = {"throughput": "nearest", "latency": "floor"}[mode] if rounding == "auto" else rounding
    previous = 0
    for quota in sorted((exact(one), exact(other))):
        given = Cpus(quota.numerator, quota.denominator)
        by_quota = plan_of(machine, given, options)
        by_option = plan_of(machine, None, options._replace(cpus=given))
        limit = min(quota, Fraction(allowed))
        rounded = {"floor": floor(limit), "nearest": floor(limit + Fraction(1, 2)), "ceil": ceil(limit)}[word]
        expected = min(max(rounded, 1), len(cores))
        if mode == "latency":
            expected = max(expected - 1, 1)
        assert by_quota.intra_op.value == by_option.intra_op.value == by_quota.omp.value == expected
        assert by_quota.python_cpu_count.value == by_option.python_cpu_count.value == ceil(limit)
        assert previous <= expected <= allowed
        previous = expected


def plan_of(machine: Machine, quota: Cpus | None, options: Options) -> Plan:
    limit, _ = make_limit(machine, Quota(2, quota, "cpu.max", (), is_hidden=False), options)
    return make_plan(machine, limit, options)[0]


# --- Variables of the caller ---

EXPORTED = ("4", " 4 ", "04", "", "0", "-1", "1024", "1025", "4,3,2", "infinite", "50us", "default", "compact,1,0")
VARIABLE_NAMES = tuple(variable.name for variable in VARIABLES)
EXPORTABLE = (*VARIABLE_NAMES, *BINDING_VARIABLES, "PATH")
PLAN = Plan(*(Number(value, "why") for value in (3, 2, 5, 6, 1, 7)))
OVERRIDE = Options(override_env=True, origins=(("override_env", "--override-env"),))


def make_environ(random: Random) -> dict[str, str]:
    return {random.choice(EXPORTABLE): mutated(random, EXPORTED) for _ in range(random.randrange(6))}


def check_environment(environ: dict[str, str]) -> None:
    changes, problems = make_environment(PLAN, environ, Options())
    result = apply_changes(changes, environ)
    for variable in VARIABLES:
        text, planned = environ.get(variable.name), str(getattr(PLAN, variable.number).value)
        assert result[variable.name] in (text, planned)
        if text is None or not re.search("[0-9]|infinite|default", text.lower()):
            assert result[variable.name] == planned
        elif re.fullmatch("[1-9][0-9]{0,2}", text):
            assert result[variable.name] == text
    assert all(problem.message.isprintable() for problem in problems)
    assert all(change.reason.isprintable() for change in changes)
    again = apply_changes(make_environment(PLAN, result, Options())[0], result)
    assert again == result
    overridden = apply_changes(make_environment(PLAN, environ, OVERRIDE)[0], environ)
    assert all(overridden[v.name] == str(getattr(PLAN, v.number).value) for v in VARIABLES)
    assert not any(environ.get(name) and name in overridden for name in BINDING_VARIABLES)


# --- Options ---

OPTION_TEXTS = (*CPU_NUMBERS, "8", "1024", "latency", "throughput", "ceil", "auto", "none", "1", "0", "yes", "off", "")


def make_variables(random: Random) -> dict[str, str]:
    return {random.choice(OPTIONS).variable: mutated(random, OPTION_TEXTS) for _ in range(random.randint(1, 4))}


def check_options(environ: dict[str, str]) -> None:
    try:
        options = parse_options({}, environ)
    except UsageError as error:
        assert error.what.isprintable()
        assert error.hint.isprintable()
        return
    assert all(0 < n <= 1024 for n in (options.intra_op, options.inter_op, options.omp) if n is not None)
    assert options.cpus is None or options.cpus.numerator > 0
    assert all(origin.isprintable() for _, origin in options.origins)


# --- Whole machines ---

CPU = "/sys/devices/system/cpu"
TREE = {
    f"{CPU}/online": "0-3\n",
    f"{CPU}/offline": "4-7\n",
    **{f"{CPU}/cpu{n}/topology/core_cpus_list": "0-1\n" if n < 2 else "2-3\n" for n in range(4)},
    **{f"{CPU}/cpu{n}/topology/thread_siblings": "00000003\n" if n < 2 else "0000000c\n" for n in range(4)},
    **{f"{CPU}/cpu{n}/topology/core_id": f"{n // 2}\n" for n in range(4)},
    **{f"{CPU}/cpu{n}/topology/physical_package_id": "0\n" for n in range(4)},
    **{f"{CPU}/cpu{n}/cpu_capacity": "1024\n" if n < 2 else "446\n" for n in range(4)},
    **{f"{CPU}/cpu{n}/cpufreq/cpuinfo_max_freq": "3000000\n" if n < 2 else "2000000\n" for n in range(4)},
    "/sys/devices/cpu_core/cpus": "0-1\n",
    "/sys/devices/cpu_atom/cpus": "2-3\n",
    "/sys/devices/system/node/node0/cpulist": "0-1\n",
    "/sys/devices/system/node/node1/cpumap": "0000000c\n",
    "/proc/cpuinfo": CPUINFO[0],
    "/proc/self/status": "Name:\tpython\nCpus_allowed_list:\t0-3\n",
    "/proc/self/cgroup": "5:cpu,cpuacct:/jobs/one\n0::/jobs/one\n",
    "/proc/self/mountinfo": "31 24 0:27 / /sys/fs/cgroup/cpu rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
    "32 24 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
    "/sys/fs/cgroup/cpu/jobs/one/cpu.cfs_quota_us": "150000\n",
    "/sys/fs/cgroup/cpu/jobs/one/cpu.cfs_period_us": "100000\n",
    "/sys/fs/cgroup/unified/jobs/one/cpu.max": "150000 100000\n",
    "/sys/fs/cgroup/unified/cgroup.controllers": "cpu memory\n",
}


class MemoryFiles(Files):
    """Stands for a tree on disk as Files reads it: a file's text, a directory's names, None and [] for none."""

    def __init__(self, tree: dict[str, bytes]) -> None:
        super().__init__("/in-memory")
        self._tree = tree

    def read(self, path: str) -> str | None:
        data = self._tree.get(path)
        return None if data is None else os.fsdecode(data).rstrip("\0")

    def names(self, directory: str) -> list[str]:
        start = directory.rstrip("/") + "/"
        return list({path[len(start) :].partition("/")[0] for path in self._tree if path.startswith(start)})


def make_tree(random: Random) -> dict[str, bytes]:
    """The tree with some files changed, some missing and, one time in three, on cgroup v2."""
    tree = {path: text.encode() for path, text in TREE.items()}
    if random.random() < 0.33:
        tree["/proc/self/cgroup"] = b"0::/jobs/one\n"
    for path in random.sample(tuple(TREE), random.randrange(7)):
        if random.random() < 0.3:
            del tree[path]
        elif random.random() < 0.3:
            tree[path] = random.randbytes(random.randrange(40))
        else:
            tree[path] = mutated(random, (TREE[path],)).encode("utf-8", "surrogateescape")
    if random.random() < 0.3:
        part = random.choice(("core_cpus_list", "topology/", "cpu_capacity", "/node/", f"{CPU}/", "/proc/", "/sys/fs"))
        tree = {path: data for path, data in tree.items() if part not in path}
    return tree


def check_machine(tree: dict[str, bytes]) -> None:
    files = MemoryFiles(tree)
    decision = decide(files, Options(), {})
    machine, plan = decision.machine, decision.plan
    assert machine.allowed
    assert frozenset().union(*machine.cores) == machine.allowed
    assert sum(map(len, machine.cores)) == len(machine.allowed)
    assert 1 <= plan.intra_op.value <= len(machine.cores)
    assert plan.inter_op.value == 2
    assert 1 <= plan.python_cpu_count.value <= len(machine.allowed)
    assert all(problem.message.isprintable() for problem in decision.problems)
    details = read_details(files, machine)
    assert sum(map(len, details.sockets.values())) == len(machine.allowed)
    document.make_document(decision, details, files)


# name: (weight, what makes an input, what checks it)
CHECKS: dict[str, tuple[int, Callable[[Random], object], Callable[..., None]]] = {
    "parser": (50, make_text, check_parser),
    "plan": (15, make_facts, check_plan),
    "environment": (15, make_environ, check_environment),
    "options": (10, make_variables, check_options),
    "machine": (10, make_tree, check_machine),
}


def main() -> int:
    parser = argparse.ArgumentParser(description="Random and mutated inputs for everything that reads or decides.")
    parser.add_argument("--count", type=int, default=1_000_000, help="how many inputs (default 1000000)")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000, help="the inputs follow from it")
    arguments = parser.parse_args()
    # What is installed is no input here, and listing it for each machine would take most of the time.
    document.installed_distributions = frozenset
    random = Random(arguments.seed)
    names = tuple(CHECKS)
    weights = tuple(accumulate(weight for weight, _, _ in CHECKS.values()))
    made = dict.fromkeys(names, 0)
    start = progress = time.monotonic()
    for number in range(1, arguments.count + 1):
        (name,) = random.choices(names, cum_weights=weights)
        _, make, check = CHECKS[name]
        case = make(random)
        made[name] += 1
        try:
            check(case)
        except Exception:  # noqa: BLE001  # whatever it is, it is a finding
            traceback.print_exc()
            print(f"seed {arguments.seed}, input {number} fails the check {name!r}:\n{case!r}")
            return 1
        if time.monotonic() - progress > SECONDS_BETWEEN_PROGRESS:
            progress = time.monotonic()
            print(f"{number} of {arguments.count}, {progress - start:.0f} s", file=sys.stderr)
    seconds = time.monotonic() - start
    kinds = ", ".join(f"{name} {count}" for name, count in made.items())
    print(f"{arguments.count} inputs ({kinds}), seed {arguments.seed}, {seconds:.1f} s: 0 failures")
    return 0


if __name__ == "__main__":
    sys.exit(main())
