"""What the measurements share: the machine that measured, the emulated one, the spread of a ratio, and a table."""

from __future__ import annotations

import os
import platform
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

PACKAGES = ("tflaunch", "typer", "tensorflow-cpu", "tensorflow", "keras", "numpy", "torch")


def describe_machine() -> str:
    """Date, machine and versions: what a recorded number means nothing without."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown model")
    load = ", ".join(f"{value:.2f}" for value in os.getloadavg())
    return (
        f"date      {time.strftime('%Y-%m-%d %H:%M %Z')}\n"
        f"machine   {model}, {os.cpu_count()} CPUs, {platform.system()} {platform.release()} {platform.machine()}\n"
        f"load      {load} (1, 5 and 15 minutes, at the start)\n"
        f"versions  {versions()}\n"
        f"command   {command_line()}"
    )


def versions() -> str:
    """Of Python and of what is measured."""
    packages = " ".join(f"{name} {version}" for name in PACKAGES if (version := version_of(name)))
    return f"Python {platform.python_version()} {packages}"


def build_many_cpus(directory: Path, cpus: int) -> str:
    """Compile many_cpus.c for a machine with so many CPUs; returns what LD_PRELOAD has to be."""
    library = directory / "many_cpus.so"
    source = Path(__file__).with_name("many_cpus.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O2", f"-DCPUS={cpus}", "-o", library, source, "-ldl"], check=True)
    return str(library)


def version_of(distribution: str) -> str | None:
    """The installed version, or None."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def command_line() -> str:
    """How this measurement is repeated."""
    program = os.path.relpath(sys.argv[0], Path(__file__).parents[1])
    kernels = [f"{name}={os.environ[name]}" for name in ("TF_ENABLE_ONEDNN_OPTS",) if name in os.environ]
    return shlex.join([*kernels, "python", program, *sys.argv[1:]])


def ratio(values: Sequence[float], to: Sequence[float]) -> str:
    """Median and quartiles of the ratios of values measured in the same round: "2.81 (2.75..2.90)"."""
    ratios = [value / reference for value, reference in zip(values, to, strict=True)]
    return spread(ratios)


def spread(values: Sequence[float]) -> str:
    """Median and quartiles."""
    if len(values) == 1:
        return f"{values[0]:.2f}"
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return f"{middle:.2f} ({low:.2f}..{high:.2f})"


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest of the values that at least `percent` of them do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -int(-len(ordered) * percent // 100) - 1)]


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table that can be read as text and pasted into a page."""
    cells = [list(header), *(list(row) for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    lines = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |" for row in cells]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)
