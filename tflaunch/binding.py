"""`--bind cores`: which CPUs the program is bound to, and the binding itself.

Only a start that asks for it imports this file. What is set is the affinity mask (sched_setaffinity(2)), which threads
and children inherit; the memory policy is left alone. The choice is pure and apart from the reading:

/proc/stat    cpu0 user nice system idle iowait irq softirq steal guest guest_nice    proc_stat(5), in clock ticks
"""

from __future__ import annotations

import os

from tflaunch import topology
from tflaunch._namedtuple import NamedTuple
from tflaunch.cpulist import MAX_CPU, format_cpulist, parse_cpulist
from tflaunch.cpus import Cpus
from tflaunch.errors import UsageError
from tflaunch.files import Files
from tflaunch.machine import Machine
from tflaunch.options import Options
from tflaunch.policy import Limit, Plan
from tflaunch.text import natural

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# How long CPUs are watched before the choice: ten ticks of the usual clock, which tell a busy CPU from an idle one.
SAMPLE_SECONDS = 0.1

# Guest time is in user time already, so the first eight numbers are all the time there is; 0, 1, ... of them.
STAT_FIELDS, STAT_IDLE, STAT_IOWAIT = 8, 3, 4


class Binding(NamedTuple):
    """cpus: what the program is bound to, empty where there is nothing to bind."""

    cpus: frozenset[int]
    reason: str


class Places(NamedTuple):
    """What there is to choose from: CPUs by core, NUMA node and kind (fastest first).

    busy: those that were busy just now; None where that cannot be seen.
    """

    cores: tuple[frozenset[int], ...]
    nodes: dict[int, frozenset[int]]
    kinds: tuple[topology.CpuKind, ...] = ()
    busy: frozenset[int] | None = None


def make_binding(
    files: Files, machine: Machine, limit: Limit, plan: Plan, options: Options, environ: Mapping[str, str]
) -> Binding:
    """The CPUs to bind to: as many as the plan has. UsageError where every container would bind to the same ones."""
    allowed = machine.allowed
    if files.is_this_machine and "TFLAUNCH_VIEW_CPUS" in environ:
        # The view of an outer tflaunch shows this process too only a part of its mask.
        allowed = read_true_mask(files) or allowed
    count = plan.python_cpu_count.value
    if count >= len(allowed):
        return Binding(frozenset(), "nothing to bind: the plan uses all allowed CPUs")
    isolated = _read_cpulist(files, f"{topology.CPU}/isolated")
    check_cpuset(allowed, machine.online - isolated, limit, options)
    # The kernel moves no thread between isolated CPUs. A mask may name CPUs that are offline, and /sys of a container
    # other CPUs than the mask.
    preferences = (allowed & machine.online - isolated, allowed & machine.online, allowed)
    candidates = next(cpus for cpus in preferences if len(cpus) >= count)
    places = Places(
        cores=topology.read_cores(files, candidates),
        nodes=topology.read_numa_nodes(files, candidates),
        kinds=topology.read_cpu_kinds(files, machine.online, candidates),
        busy=read_busy(files),
    )
    chosen = choose_cpus(count, places)
    return Binding(chosen, f"{plan.python_cpu_count.reason}; {describe(chosen, places)}")


def check_cpuset(allowed: frozenset[int], shared: frozenset[int], limit: Limit, options: Options) -> None:
    """UsageError under a quota without a cpuset: each container of the host would choose the same CPUs.

    shared: the CPUs that every process of the host may use unless something narrows its mask.
    """
    quota = limit.quota.cpus
    if quota is None or not quota.is_less_than(Cpus(len(allowed))) or not shared <= allowed or options.bind_anyway:
        return
    raise UsageError(
        f"{options.origin('bind')} under a quota of {quota} CPU{'' if str(quota) == '1' else 's'} without a cpuset: "
        f"every container of this host would bind to the same of its {len(allowed)} CPUs",
        "give the container a cpuset (docker run --cpuset-cpus, the static CPU manager of Kubernetes), or add "
        "--bind-anyway where it is alone on the host",
    )


def choose_cpus(count: int, places: Places) -> frozenset[int]:
    """So many CPUs, on as few NUMA nodes as possible; in a node cores before siblings, then idle ones, then fast ones.

    Of several nodes that would do, that with fewest siblings, then fewest busy CPUs, then the fastest ones.
    """
    everything = _members(places.cores)
    nodes = [cpus & everything for cpus in places.nodes.values()]
    nodes.append(everything.difference(*nodes))
    orders = [_in_order(node, places) for node in nodes if node]
    chosen: list[frozenset[int]] = []
    wanted = min(count, len(everything))
    while wanted > 0:
        sizes = sorted(map(len, orders), reverse=True)
        fewest = next(number for number in range(1, len(sizes) + 1) if sum(sizes[:number]) >= wanted)
        # Those with which the number of nodes stays the smallest; each is looked at for its share.
        fitting = [order for order in orders if len(order) + sum(sizes[: fewest - 1]) >= wanted]
        share = -(-wanted // fewest)
        best = min(fitting, key=lambda order: _cost(order[:share]))
        orders.remove(best)
        chosen.append(frozenset(rank.cpu for rank in best))
        wanted -= len(best)
    return frozenset(rank.cpu for rank in _in_order(_members(chosen), places)[:count])


class _Rank(NamedTuple):
    """How soon a CPU is taken: its place among its siblings, whether it or its core is busy, its kind, its number."""

    sibling: int
    is_busy: bool
    shares_busy_core: bool
    kind: int
    cpu: int


def _in_order(cpus: frozenset[int], places: Places) -> list[_Rank]:
    """The CPUs, best first."""
    busy = places.busy or frozenset()
    kinds = {cpu: number for number, kind in enumerate(places.kinds) for cpu in kind.cpus}
    ranks = []
    for core in places.cores:
        siblings = sorted(core & cpus, key=lambda cpu: (cpu in busy, kinds.get(cpu, 0), cpu))
        ranks += [
            _Rank(place, cpu in busy, bool(core & busy), kinds.get(cpu, 0), cpu) for place, cpu in enumerate(siblings)
        ]
    return sorted(ranks)


def _cost(ranks: list[_Rank]) -> tuple[int, ...]:
    """What speaks against these CPUs, the weightiest first; the lower numbers at last."""
    return (
        sum(rank.sibling for rank in ranks),
        sum(rank.is_busy for rank in ranks),
        sum(rank.shares_busy_core for rank in ranks),
        sum(rank.kind for rank in ranks),
        min(rank.cpu for rank in ranks),
    )


def describe(chosen: frozenset[int], places: Places) -> str:
    """What was chosen, in words."""
    cores = sum(1 for core in places.cores if core & chosen)
    words = ["one CPU" if len(chosen) == 1 else f"{len(chosen)} CPUs on {cores} core{'' if cores == 1 else 's'}"]
    nodes = frozenset(node for node, cpus in places.nodes.items() if cpus & chosen)
    if len(places.nodes) > 1 and nodes:
        words.append(f"NUMA node{'' if len(nodes) == 1 else 's'} {format_cpulist(nodes)}")
    kinds = [kind.kind for kind in places.kinds if kind.cpus & chosen]
    if len(places.kinds) > 1:
        words.append(f"{' and '.join(kinds)} CPUs")
    if places.busy is None:
        words.append("which CPUs are busy cannot be seen")
    elif busy := places.busy & _members(places.cores):
        words.append(f"{format_cpulist(busy)} {'was' if len(busy) == 1 else 'were'} busy")
    return ", ".join(words)


def read_true_mask(files: Files) -> frozenset[int]:
    """The mask of this process as the kernel shows it, which no preloaded library changes; empty where it does not."""
    for line in (files.read("/proc/self/status") or "").split("\n"):
        key, _, value = line.partition(":")
        if key == "Cpus_allowed_list":
            return _parse(value)
    return frozenset()


def read_busy(files: Files) -> frozenset[int] | None:
    """The CPUs that are busy now, watched for a moment; None where that cannot be seen.

    Only a preference hangs on it, so a file that cannot be used is no problem that anyone is told.
    """
    if not files.is_this_machine:
        return None
    import time

    unheard = Files()
    before = parse_cpu_times(unheard.read("/proc/stat") or "")
    if not before:
        return None
    time.sleep(SAMPLE_SECONDS)
    return find_busy(before, parse_cpu_times(unheard.read("/proc/stat") or ""))


def parse_cpu_times(text: str) -> dict[int, tuple[int, int]]:
    """(busy, idle) ticks of each CPU since the boot; lines that are no such line are left out."""
    times: dict[int, tuple[int, int]] = {}
    for line in text.split("\n"):
        if not line.startswith("cpu"):
            continue
        name, *fields = line.split(" ")
        cpu = natural(name[len("cpu") :])
        numbers = [natural(field) for field in fields[:STAT_FIELDS]]
        known = [number for number in numbers if number is not None]
        if cpu is None or cpu > MAX_CPU or len(known) < len(numbers) or len(known) <= STAT_IOWAIT:
            continue
        idle = known[STAT_IDLE] + known[STAT_IOWAIT]
        times[cpu] = (sum(known) - idle, idle)
    return times


def find_busy(before: Mapping[int, tuple[int, int]], after: Mapping[int, tuple[int, int]]) -> frozenset[int]:
    """The CPUs that were busy for more than half of the time between; iowait may go backwards (proc_stat(5))."""
    return frozenset(
        cpu
        for cpu in before.keys() & after.keys()
        if after[cpu][0] - before[cpu][0] > max(after[cpu][1] - before[cpu][1], 0)
    )


def bind(cpus: frozenset[int]) -> str | None:
    """Bind this process, and so the program that takes its place; returns why it could not be, and leaves it then."""
    if not hasattr(os, "sched_setaffinity"):
        return "this system binds no processes"
    try:
        before = _mask()
        _set_mask(cpus)
        mask = _mask()
        if mask == cpus:
            return None
        # The kernel leaves out what is not there without an error, and the plan has threads for all of them.
        _set_mask(before)
    except OSError as error:
        return error.strerror or str(error)
    missing = cpus - mask
    return f"CPU {format_cpulist(missing)} cannot be used" if missing else "the view of an outer tflaunch hinders it"


def _mask() -> frozenset[int]:
    return read_true_mask(Files()) or frozenset(os.sched_getaffinity(0))


def _set_mask(cpus: frozenset[int]) -> None:
    """The view of an outer tflaunch takes the CPUs that it tells of for all CPUs, but not from another process."""
    os.sched_setaffinity(0, cpus)
    if not _mask() > cpus:
        return
    process = os.getpid()
    child = os.fork()
    if child == 0:
        try:
            os.sched_setaffinity(process, cpus)
        finally:
            os._exit(0)
    try:
        os.waitpid(child, 0)
    except ChildProcessError:  # who started this ignores SIGCHLD: then it has ended by now
        pass


def _read_cpulist(files: Files, path: str) -> frozenset[int]:
    return _parse(files.read(path) or "")


def _parse(text: str) -> frozenset[int]:
    try:
        return parse_cpulist(text)
    except ValueError:
        return frozenset()


def _members(sets: Iterable[frozenset[int]]) -> frozenset[int]:
    return frozenset(cpu for cpus in sets for cpu in cpus)
