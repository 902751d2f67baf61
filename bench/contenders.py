"""What bench/policy.py compares: limits, hosts, settings, and the settings that other tools and guides choose.

A setting is what TensorFlow is given: intra-op threads, inter-op threads, and the number of CPUs that the process sees,
which sizes what no variable sizes (tf.data). Two contenders with equal settings are one measurement.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

EMULATED_CPUS = 64


class Host(NamedTuple):
    """A machine as tools see it that know no container: CPUs (hardware threads), physical cores, sockets."""

    name: str
    cpus: int
    cores: int
    sockets: int


class Limit(NamedTuple):
    """quota: CPUs, or None; cpuset: how many CPUs, or None for all."""

    name: str
    quota: float | None = None
    cpuset: int | None = None


class Setting(NamedTuple):
    """intra, inter: None is nothing set. sees: None is the machine as it is. omp: OMP_NUM_THREADS, None is not set."""

    intra: int | None
    inter: int | None
    sees: int | None = None
    omp: int | None = None

    def __str__(self) -> str:
        pools = "nothing set" if self.intra is None else f"{self.intra}/{self.inter}"
        omp = f", OMP {self.omp}" if self.omp else ""
        return pools + omp + (f", sees {self.sees}" if self.sees else "")


QUOTAS = (0.5, 1.0, 1.5, 2.0)
LIMITS = (*(Limit(f"quota {cpus:g}", quota=cpus) for cpus in QUOTAS), Limit("cpuset 1", cpuset=1), Limit("none"))

INTRA = (1, 2, 3, 4)
INTER = (1, 2, 4)

# The programs by what they are; which of programs.py asks for the number of CPUs itself; which shows BLAS beside
# TensorFlow, and is asked nothing else.
TRAINING = ("cnn", "mlp", "transformer", "lstm", "data")
GRAPHS = ("wide", "matmul")
INFERENCE = ("infer", "serve", "vision")
PROGRAMS = (*TRAINING, *GRAPHS, *INFERENCE)
ASKS_FOR_CPUS = ("data",)
BLAS = ("product", "blas")

# Two sockets of 16 cores with two threads each.
EMULATED = Host(f"{EMULATED_CPUS} CPUs", EMULATED_CPUS, cores=32, sockets=2)

# Intra-op and inter-op of those who know no limit. Where a tool sets OMP_NUM_THREADS too, that changes nothing here:
# the stock wheel of TensorFlow does not read it (bench/limits.py).
PEERS: dict[str, Callable[[Host], tuple[int, int]]] = {
    # "intra = cores per socket, inter = 2": answers and guides all over the web. lscpu's cores per socket.
    "web snippet": lambda host: (host.cores // host.sockets, 2),
    # Intel, "Maximize TensorFlow Performance on CPU": physical cores per socket, number of sockets.
    "Intel's guide": lambda host: (host.cores // host.sockets, host.sockets),
    # intel_extension_for_tensorflow/python/launch.py: the cores of an instance, 1.
    "ITEX launch": lambda host: (host.cores, 1),
    # AMD, zentf 5.2 user guide: cores, 1.
    "AMD's guide": lambda host: (host.cores, 1),
    # AWS, "TensorFlow on Graviton": vCPUs, 1.
    "AWS's guide": lambda host: (host.cpus, 1),
}
# These set OMP_NUM_THREADS alone, 1 or the cores, and leave TensorFlow's default; what torch's launcher exports is
# looked at by tests/matrix. It also pins by numactl, which is left out here.
DEFAULT = "TensorFlow's default"
AS_DEFAULT = ("OMP_NUM_THREADS=1", "OMP of torch run_cpu")


def as_it_is() -> Host:
    """This machine, from /proc/cpuinfo (proc_cpuinfo(5)); where it names no cores, each CPU is one."""
    packages, cores, cpus, package = set(), set(), 0, "0"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "processor":
            cpus += 1
        elif name.strip() == "physical id":
            packages.add(package := value.strip())
        elif name.strip() == "core id":
            cores.add((package, value.strip()))
    return Host(f"{cpus} CPUs", cpus, len(cores) or cpus, len(packages) or 1)


def hosts_under(limit: Limit, here: Host) -> tuple[Host, ...]:
    """Without a limit an emulated host would promise CPUs that are not there."""
    return (here,) if limit == Limit("none") else (here, EMULATED)


def seen(limit: Limit, host: Host) -> int | None:
    """CPUs that a process sees without a view: a cpuset is seen on any host, a quota on none."""
    return host.cpus if host == EMULATED and not limit.cpuset else None


def choices(limit: Limit, host: Host) -> dict[str, Setting]:
    """What TensorFlow's default and each peer choose."""
    sees = seen(limit, host)
    default = Setting(limit.cpuset or host.cpus, limit.cpuset or host.cpus)
    if sees:
        default = Setting(None, None, sees)
    return (
        {DEFAULT: default}
        | dict.fromkeys(AS_DEFAULT, default)
        | {name: Setting(*formula(host), sees) for name, formula in PEERS.items()}
    )


def grid(program: str, limit: Limit, here: Host, small: bool = False) -> list[Setting]:
    """Every intra-op x inter-op, and for a program that asks for CPUs each with the view and without, on each host."""
    pools = [(1, 2), (2, 2)] if small else [(intra, inter) for intra in INTRA for inter in INTER]
    if program in BLAS:
        return [Setting(intra, 2, None, omp) for intra in (1, 2) for omp in (1, 2)]
    views: list[int | None] = [None]
    if program in ASKS_FOR_CPUS and limit.quota:
        views = [None, viewed(limit.quota, here), EMULATED_CPUS]
    return [Setting(*pool, sees) for sees in dict.fromkeys(views) for pool in pools]


def viewed(cpus: float, here: Host) -> int | None:
    """What the view shows under a quota: whole CPUs; None where that is what is there anyway."""
    whole = int(-(-cpus // 1))
    return whole if whole < here.cpus else None


def measured_as(program: str, setting: Setting) -> Setting:
    """The setting whose measurement stands for this one: CPUs seen matter only to a program that asks for them.

    Pools of 1 to 4 threads are measured on the machine as it is; larger ones are those of an emulated host.
    """
    if program in ASKS_FOR_CPUS or setting.intra not in INTRA or setting.inter not in INTER:
        return setting
    return setting._replace(sees=None)


def cells(
    limit: Limit, here: Host, programs: tuple[str, ...], plans: Sequence[Setting], small: bool = False
) -> dict[str, list[Setting]]:
    """What has to be measured under a limit: each program with each of its settings and with the plans, once."""
    found = {}
    for program in programs:
        settings = grid(program, limit, here, small)
        if program not in BLAS:
            settings += [choice for host in hosts_under(limit, here) for choice in choices(limit, host).values()]
            settings += plans
        found[program] = list(dict.fromkeys(measured_as(program, setting) for setting in settings))
    return found
