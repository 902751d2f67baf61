"""/proc/cpuinfo: the last resort for the topology, and the model and instruction sets for people.

The file has one block of "key : value" lines a CPU on most architectures, and other forms on the rest:

    x86          processor : 3      physical id : 0      core id : 1      model name : ...      flags : ...
    ARM          processor : 3      CPU part : 0xd0b     Features : ...   (old: Processor : ARMv7 ..., no number)
    POWER        processor : 3      cpu : POWER9 ...
    s390         processor 3: version = FF,  identification = ...        (newer kernels add blocks: cpu number : 3)

https://man7.org/linux/man-pages/man5/proc_cpuinfo.5.html, and show_cpuinfo() of each architecture in the kernel.
"""

from __future__ import annotations

from tflaunch._namedtuple import NamedTuple
from tflaunch.cpulist import MAX_CPU
from tflaunch.text import natural

# Keys that name the processor, the most telling first; "cpu" is POWER's, "vendor_id" is all that s390 has.
MODEL_KEYS = ("model name", "cpu model", "cpu", "Hardware", "Processor", "uarch", "vendor_id")
FLAG_KEYS = ("flags", "Features", "features", "isa")


class CpuInfo(NamedTuple):
    """cores: the (package id, core id) of each CPU, None where the file does not say."""

    cores: dict[int, tuple[int, int] | None]
    model: str | None
    flags: frozenset[str]


def parse_cpuinfo(text: str) -> CpuInfo:
    """Whatever of it can be understood; lines that cannot are skipped."""
    cores: dict[int, tuple[int, int] | None] = {}
    first_values: dict[str, str] = {}
    block: dict[str, str] = {}
    for line in [*text.split("\n"), ""]:
        key, _, value = (part.strip() for part in line.partition(":"))
        if not key:
            _add_block(cores, block)
            block = {}
        elif key.startswith("processor ") and (s390 := natural(key[len("processor ") :])) is not None:
            if s390 <= MAX_CPU:
                cores.setdefault(s390, None)
        elif key == "processor" and key in block:  # blocks without a blank line between them
            _add_block(cores, block)
            block = {key: value}
        else:
            block[key] = value
            first_values.setdefault(key, value)
    model = next((first_values[key] for key in MODEL_KEYS if first_values.get(key)), None)
    flags = next((first_values[key] for key in FLAG_KEYS if first_values.get(key)), "")
    return CpuInfo(cores, model, frozenset(flags.split()))


def _add_block(cores: dict[int, tuple[int, int] | None], block: dict[str, str]) -> None:
    cpu = natural(block.get("processor", block.get("cpu number", "")))
    if cpu is None or cpu > MAX_CPU:
        return
    package, core = natural(block.get("physical id", "")), natural(block.get("core id", ""))
    if block.get("siblings") and block.get("siblings") == block.get("cpu cores"):
        core = cpu  # no SMT: every CPU is a core, whatever number a hypervisor repeats
    cores[cpu] = None if package is None or core is None else (package, core)
