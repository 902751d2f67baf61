"""Small machines: the few kernel files a test is about, written below a directory of its own.

Nothing here uses the package's parsers, so that they are never checked against themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tflaunch.files import Files

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

CPU = "/sys/devices/system/cpu"
NODE = "/sys/devices/system/node"


def plant(directory: Path, files: Mapping[str, str | bytes]) -> Files:
    """Write the files below the directory; a path that ends with / becomes an empty directory."""
    for path, content in files.items():
        target = directory / path.strip("/")
        if path.endswith("/"):
            target.mkdir(parents=True, exist_ok=True)
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content if isinstance(content, bytes) else content.encode())
    return Files(str(directory))


def expand(cpulist: str) -> list[int]:
    """[0, 1, 2, 8] for "0-2,8"."""
    cpus = []
    for part in cpulist.split(",") if cpulist else []:
        low, _, high = part.partition("-")
        cpus += range(int(low), int(high or low) + 1)
    return cpus


def collapse(cpus: Iterable[int]) -> str:
    """ "0,1,2,8" for these CPUs: a list without ranges is one too."""
    return ",".join(str(cpu) for cpu in sorted(cpus))


def bitmap(cpus: Iterable[int]) -> str:
    """The CPUs as hexadecimal digits, in groups of 32 bits."""
    bits = sum(1 << cpu for cpu in set(cpus))
    words = []
    while bits or not words:
        words.append(f"{bits % 2**32:08x}")
        bits >>= 32
    return ",".join(reversed(words))


def cores(*siblings: str, name: str = "thread_siblings_list") -> dict[str, str]:
    """Lists of siblings, one argument a core: cores("0,4", "1,5") is two cores of two threads."""
    return {f"{CPU}/cpu{cpu}/topology/{name}": f"{core}\n" for core in siblings for cpu in expand(core)}


def smt(cores: int, threads: int, *, split: bool = False) -> list[str]:
    """The siblings of each core. Adjacent: 0-1, 2-3, ...; split: the second threads after all the first ones."""
    if split:
        return [collapse(core + cores * thread for thread in range(threads)) for core in range(cores)]
    return [collapse(range(core * threads, (core + 1) * threads)) for core in range(cores)]


def online(cpulist: str, offline: str = "") -> dict[str, str]:
    """The kernel's lists of online and offline CPUs."""
    return {f"{CPU}/online": f"{cpulist}\n", f"{CPU}/offline": f"{offline}\n"}


def sockets(*cpulists: str) -> dict[str, str]:
    """The package ids 0, 1, ... of the CPUs of each socket."""
    return {
        f"{CPU}/cpu{cpu}/topology/physical_package_id": f"{package}\n"
        for package, cpulist in enumerate(cpulists)
        for cpu in expand(cpulist)
    }


def nodes(cpulists: Mapping[int, str]) -> dict[str, str]:
    """The CPU list of each NUMA node; an empty one for memory without CPUs."""
    return {f"{NODE}/node{node}/cpulist": f"{cpulist}\n" for node, cpulist in cpulists.items()}


def per_cpu(name: str, values: Mapping[str, object]) -> dict[str, str]:
    """A file of each CPU's directory: per_cpu("cpu_capacity", {"0-3": 446, "4-7": 1024})."""
    return {f"{CPU}/cpu{cpu}/{name}": f"{value}\n" for cpulist, value in values.items() for cpu in expand(cpulist)}


def status(cpulist: str) -> dict[str, str]:
    """The affinity mask of a recorded process."""
    return {"/proc/self/status": f"Name:\tpython\nCpus_allowed:\tff\nCpus_allowed_list:\t{cpulist}\nMems_allowed:\t1\n"}
