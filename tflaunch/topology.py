"""Which CPUs there are and how they belong together, from /sys/devices/system.

What the plan needs (online CPUs, cores) is apart from what is only shown to people (sockets, NUMA nodes, kinds), so
that a start reads no more than it uses. CPUs are counted by the kernel's own lists of siblings: core ids are unique
only within a package, package ids may be -1, and the numbers of CPUs and nodes have gaps.

Sources, in the kernel's documentation: admin-guide/cputopology.rst, ABI/stable/sysfs-devices-node,
ABI/testing/sysfs-devices-system-cpu (cpu_capacity, cpufreq).
"""

from __future__ import annotations

from tflaunch._namedtuple import NamedTuple
from tflaunch.cpuinfo import parse_cpuinfo
from tflaunch.cpulist import MAX_CPU, parse_cpulist, parse_cpumask
from tflaunch.files import Files
from tflaunch.text import natural

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

CPU = "/sys/devices/system/cpu"
NODE = "/sys/devices/system/node"

# The siblings of a core under their present and their older names (kernel 5.4 renamed them).
SIBLING_LISTS = ("core_cpus_list", "thread_siblings_list")
SIBLING_MASKS = ("core_cpus", "thread_siblings")

# POWER's SMT8 is the most there is. Hypervisors that name all CPUs as one core would leave a single thread.
MAX_THREADS_PER_CORE = 8

# CPUs whose capacity or maximum frequency differ by at most 5 % are of one kind: the recorded machines show 4 % between
# the favoured and the other performance cores of one processor, and 5.3 % between the closest real kinds.
SAME_KIND_PERCENT = 5


class CpuKind(NamedTuple):
    """CPUs of one speed class: "performance" the fastest, "efficiency" the slowest, "middle" between them."""

    kind: str
    cpus: frozenset[int]


def read_online(files: Files) -> frozenset[int]:
    """The CPUs the kernel has online: its list, else the cpuN directories, else /proc/cpuinfo. May be empty."""
    online = _read_set(files, f"{CPU}/online", parse_cpulist)
    if online:
        return online
    numbers = [number for name in files.names(CPU) if (number := _number(name, "cpu")) is not None]
    online = frozenset(n for n in numbers if (files.read(f"{CPU}/cpu{n}/online") or "1").strip() != "0")
    return online or frozenset(parse_cpuinfo(files.read("/proc/cpuinfo") or "").cores)


def read_offline(files: Files) -> frozenset[int]:
    """The CPUs the kernel lists as offline."""
    return _read_set(files, f"{CPU}/offline", parse_cpulist) or frozenset()


def read_cores(files: Files, allowed: frozenset[int]) -> tuple[frozenset[int], ...]:
    """The allowed CPUs grouped by physical core.

    From the lists of siblings; where there is none from package and core id, of sysfs or /proc/cpuinfo. A CPU of
    which nothing is known is a core.
    """
    cores: dict[object, set[int]] = {}
    unplaced = set(allowed)
    by_cpuinfo: dict[int, tuple[int, int] | None] | None = None
    for cpu in sorted(allowed):
        if cpu not in unplaced:
            continue
        siblings = _read_siblings(files, cpu)
        if len(siblings) > MAX_THREADS_PER_CORE:
            path = f"{CPU}/cpu{cpu}/topology"
            files.report("malformed_file", path, f"{len(siblings)} threads in one core, which no processor has")
            siblings = frozenset({cpu})
        if siblings:
            cores[cpu] = unplaced & siblings
            unplaced -= siblings
            continue
        core_id: tuple[int, ...] | None = _read_core_id(files, cpu)
        if core_id is None:
            if by_cpuinfo is None:
                by_cpuinfo = parse_cpuinfo(files.read("/proc/cpuinfo") or "").cores
            core_id = by_cpuinfo.get(cpu)
        cores.setdefault(core_id or cpu, set()).add(cpu)
        unplaced.discard(cpu)
    return tuple(frozenset(core) for core in cores.values())


def read_sockets(files: Files, cpus: frozenset[int]) -> dict[int, frozenset[int]]:
    """The CPUs by physical package, of sysfs or /proc/cpuinfo; those of an unknown one (-1) are together in -1."""
    sockets: dict[int, set[int]] = {}
    by_cpuinfo: dict[int, tuple[int, int] | None] | None = None
    for cpu in sorted(cpus):
        text = files.read(f"{CPU}/cpu{cpu}/topology/physical_package_id")
        package = natural((text or "").strip())
        if text is None:
            if by_cpuinfo is None:
                by_cpuinfo = parse_cpuinfo(files.read("/proc/cpuinfo") or "").cores
            package = (by_cpuinfo.get(cpu) or (None,))[0]
        sockets.setdefault(-1 if package is None else package, set()).add(cpu)
    return {package: frozenset(members) for package, members in sorted(sockets.items())}


def read_numa_nodes(files: Files, cpus: frozenset[int]) -> dict[int, frozenset[int]]:
    """The CPUs by NUMA node, nodes without any of them left out.

    A CPU belongs to one node; firmware that lists it in several is believed for the first.
    """
    nodes: dict[int, frozenset[int]] = {}
    unplaced = cpus
    for node in sorted(n for name in files.names(NODE) if (n := _number(name, "node")) is not None):
        members = _read_set(files, f"{NODE}/node{node}/cpulist", parse_cpulist)
        if members is None:
            members = _read_set(files, f"{NODE}/node{node}/cpumap", parse_cpumask) or frozenset()
        if members & unplaced:
            nodes[node] = members & unplaced
            unplaced -= members
    return nodes


def read_cpu_kinds(files: Files, online: frozenset[int], allowed: frozenset[int]) -> tuple[CpuKind, ...]:
    """The kinds of the allowed CPUs, fastest first; one row where all are alike.

    From cpu_capacity (ARM, RISC-V), else from the two performance-monitoring units of hybrid x86, else from the
    maximum frequency. Kinds are named by their rank among all online CPUs: a container on efficiency cores only has
    efficiency cores.
    """
    everything = online | allowed
    groups = (
        _group_by_speed(_read_numbers(files, "cpu_capacity", everything))
        or _read_hybrid_groups(files)
        or _group_by_speed(_read_numbers(files, "cpufreq/cpuinfo_max_freq", everything))
    )
    if len(groups) < 2:
        return (CpuKind("performance", allowed),)
    # CPUs that the source of the groups leaves out count as of the fastest kind.
    groups[0] |= everything.difference(*groups)
    names = ["performance", *("middle" if n == 1 else f"middle-{n}" for n in range(1, len(groups) - 1)), "efficiency"]
    return tuple(CpuKind(name, group & allowed) for name, group in zip(names, groups) if group & allowed)


def _group_by_speed(speeds: dict[int, int]) -> list[frozenset[int]]:
    """CPUs in groups of about the same speed, fastest first."""
    groups: list[set[int]] = []
    previous = None
    for speed, cpu in sorted(((speed, cpu) for cpu, speed in speeds.items()), reverse=True):
        if previous is None or previous * 100 > speed * (100 + SAME_KIND_PERCENT):
            groups.append(set())
        groups[-1].add(cpu)
        previous = speed
    return [frozenset(group) for group in groups] if len(groups) > 1 else []


def _read_hybrid_groups(files: Files) -> list[frozenset[int]]:
    """Hybrid x86 has a performance-monitoring unit for each kind, which lists its CPUs."""
    units = ("cpu_core", "cpu_atom", "cpu_lowpower")
    groups: list[frozenset[int]] = []
    for unit in units:
        cpus = (_read_set(files, f"/sys/devices/{unit}/cpus", parse_cpulist) or frozenset()).difference(*groups)
        if cpus:
            groups.append(cpus)
    return groups


def _read_numbers(files: Files, name: str, cpus: frozenset[int]) -> dict[int, int]:
    """The number in a file of each CPU's directory, of those that have one."""
    numbers: dict[int, int] = {}
    for cpu in sorted(cpus):
        text = files.read(f"{CPU}/cpu{cpu}/{name}")
        if text is None and name.startswith("cpufreq/"):
            text = files.read(f"{CPU}/cpufreq/policy{cpu}/{name[len('cpufreq/') :]}")
        number = natural((text or "").strip())
        if number:
            numbers[cpu] = number
    return numbers


def _read_siblings(files: Files, cpu: int) -> frozenset[int]:
    """The CPUs on the same core as this one, with itself; empty where no file says."""
    for names, parse in ((SIBLING_LISTS, parse_cpulist), (SIBLING_MASKS, parse_cpumask)):
        for name in names:
            siblings = _read_set(files, f"{CPU}/cpu{cpu}/topology/{name}", parse)
            if siblings and cpu in siblings:
                return siblings
    return frozenset()


def _read_core_id(files: Files, cpu: int) -> tuple[int, int, int] | None:
    """(package, die, core) of the CPU; None where package or core are unknown."""
    topology = f"{CPU}/cpu{cpu}/topology"
    package, core, die = (
        natural((files.read(f"{topology}/{name}") or "").strip())
        for name in ("physical_package_id", "core_id", "die_id")
    )
    return None if package is None or core is None else (package, die or 0, core)


def _read_set(files: Files, path: str, parse: Callable[[str], frozenset[int]]) -> frozenset[int] | None:
    """The set of CPUs in the file; None where there is no file, or no such set in it."""
    text = files.read(path)
    if text is None:
        return None
    try:
        return parse(text)
    except ValueError as error:
        files.report("malformed_file", path, str(error))
        return None


def _number(name: str, prefix: str) -> int | None:
    """12 for "cpu12"."""
    number = natural(name[len(prefix) :]) if name.startswith(prefix) else None
    return number if number is not None and number <= MAX_CPU else None
