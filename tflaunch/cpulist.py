"""Sets of CPUs as the kernel writes them.

list     0-3,8          Documentation/admin-guide/cputopology.rst; an empty line is the empty set
bitmap   ff,0000010f    hexadecimal, groups of 32 bits from the highest CPU down, split by commas
"""

from __future__ import annotations

from tflaunch.text import natural

# Linux is built for at most 8192 CPUs (NR_CPUS with MAXSMP). The bound keeps a hostile "0-99999999999" from filling
# memory.
MAX_CPU = 65535


def parse_cpulist(text: str) -> frozenset[int]:
    """ "0-3,8" as the set of its CPUs. ValueError when it is no such list."""
    cpus: set[int] = set()
    named = 0
    text = text.strip()
    for part in text.split(",") if text else ():
        low, dash, high = part.partition("-")
        first = natural(low)
        last = natural(high) if dash else first
        if first is None or last is None or not first <= last <= MAX_CPU:
            raise ValueError(f"not a list of CPUs: {text[:80]!r}")
        named += last - first + 1
        if named > MAX_CPU + 1:  # the kernel names each CPU once; a list of repetitions could go on for hours
            raise ValueError(f"not a list of CPUs: {text[:80]!r}")
        cpus.update(range(first, last + 1))
    return frozenset(cpus)


def parse_cpumask(text: str) -> frozenset[int]:
    """ "ff,0000010f" as the set of its CPUs. ValueError when it is no such bitmap."""
    digits = text.strip().replace(",", "")
    # bytes.fromhex, unlike int(text, 16), takes neither sign nor underscore nor prefix.
    if not digits.isalnum() or len(digits) * 4 > MAX_CPU + 1:
        raise ValueError(f"not a bitmap of CPUs: {text[:80]!r}")
    bits = int.from_bytes(bytes.fromhex(digits.zfill(len(digits) + len(digits) % 2)), "big")
    return frozenset(cpu for cpu, bit in enumerate(reversed(f"{bits:b}")) if bit == "1")


def format_cpulist(cpus: frozenset[int]) -> str:
    """The set as the kernel would write it: "0-3,8"."""
    ranges: list[list[int]] = []
    for cpu in sorted(cpus):
        if ranges and cpu == ranges[-1][1] + 1:
            ranges[-1][1] = cpu
        else:
            ranges.append([cpu, cpu])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in ranges)
