"""The facts: what this machine, or a recorded one, offers this process.

`Machine` and `Quota` are what the plan is computed from. `Details` are for people and are read only by `explain`.
"""

from __future__ import annotations

import os

from tflaunch import topology
from tflaunch._namedtuple import NamedTuple
from tflaunch.cpuinfo import parse_cpuinfo
from tflaunch.cpulist import parse_cpulist
from tflaunch.files import Files

# The instruction sets that decide how fast TensorFlow's kernels are, as /proc/cpuinfo and py-cpuinfo name them.
INSTRUCTION_SETS = (
    ("AVX2", "avx2"),
    ("FMA", "fma"),
    ("AVX-512", "avx512f"),
    ("AVX-512 VNNI", "avx512_vnni"),
    ("AVX-512 BF16", "avx512_bf16"),
    ("AMX", "amx_tile"),
    ("NEON", "asimd"),
    ("SVE", "sve"),
    ("BF16", "bf16"),
    ("VSX", "vsx"),
)


class Machine(NamedTuple):
    """online and allowed CPUs, and the allowed ones by physical core."""

    online: frozenset[int]
    allowed: frozenset[int]
    cores: tuple[frozenset[int], ...]


class Details(NamedTuple):
    """What is only shown: sockets, NUMA nodes and kinds of the allowed CPUs, and the online ones for a picture."""

    sockets: dict[int, frozenset[int]]
    numa_nodes: dict[int, frozenset[int]]
    cpu_kinds: tuple[topology.CpuKind, ...]
    model: str | None
    instruction_sets: tuple[str, ...]


def read_machine(files: Files) -> Machine:
    """The CPUs and cores this process may use; at least one of each, whatever the files say."""
    online = topology.read_online(files)
    if not online and files.is_this_machine and not hasattr(os, "sched_getaffinity"):
        return _machine_without_kernel_files()
    allowed = _read_allowed(files, online)
    if not allowed:
        files.report("no_cpus_found", topology.CPU, "no file names a CPU; one is assumed")
        allowed = frozenset({0})
    return Machine(online or allowed, allowed, topology.read_cores(files, allowed))


def read_details(files: Files, machine: Machine) -> Details:
    """The rest of the topology, for people."""
    text = files.read("/proc/cpuinfo")
    if text is None and files.is_this_machine:
        model, flags = _cpu_model_without_kernel_files()
    else:
        info = parse_cpuinfo(text or "")
        # ARM boards name themselves in the device tree.
        model, flags = info.model or files.read("/sys/firmware/devicetree/base/model"), info.flags
    return Details(
        sockets=topology.read_sockets(files, machine.allowed),
        numa_nodes=topology.read_numa_nodes(files, machine.allowed),
        cpu_kinds=topology.read_cpu_kinds(files, machine.online, machine.allowed),
        model=model,
        instruction_sets=tuple(name for name, flag in INSTRUCTION_SETS if flag in flags),
    )


def _read_allowed(files: Files, online: frozenset[int]) -> frozenset[int]:
    """The affinity mask, which holds the cpuset too: sched_getaffinity(2); of a recorded machine from its status file.

    The status file (proc_pid_status(5)) also names CPUs that are not there, which sched_getaffinity leaves out.
    """
    if files.is_this_machine and hasattr(os, "sched_getaffinity"):
        try:
            return frozenset(os.sched_getaffinity(0))
        except OSError as error:  # a sandbox that refuses the call
            files.report("unreadable_file", "sched_getaffinity(2)", error.strerror or str(error))
    for line in (files.read("/proc/self/status") or "").split("\n"):
        key, _, value = line.partition(":")
        if key == "Cpus_allowed_list":
            try:
                mask = parse_cpulist(value)
            except ValueError as error:
                files.report("malformed_file", "/proc/self/status", str(error))
                break
            return mask - (topology.read_offline(files) - online) or mask or online
    return online


def _machine_without_kernel_files() -> Machine:
    """macOS and Windows: counts from psutil. CPUs have no numbers there, so they get consecutive ones, core by core."""
    import psutil

    logical = psutil.cpu_count() or os.cpu_count() or 1
    cores = min(psutil.cpu_count(logical=False) or logical, logical)
    bounds = [logical * core // cores for core in range(cores + 1)]
    cpus = frozenset(range(logical))
    return Machine(cpus, cpus, tuple(frozenset(range(low, high)) for low, high in zip(bounds, bounds[1:])))


def _cpu_model_without_kernel_files() -> tuple[str | None, frozenset[str]]:
    """macOS and Windows: py-cpuinfo. It takes about a second, so it serves only `explain`."""
    import cpuinfo

    info = cpuinfo.get_cpu_info()
    return info.get("brand_raw"), frozenset(info.get("flags", ()))
