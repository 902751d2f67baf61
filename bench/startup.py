"""What starting a program through tflaunch costs, beside other launchers and beside the imports that decided how.

    .venv/bin/python bench/startup.py [--rounds 20]

Every command is run once a round, in turns, with the interpreter that runs this; p.py is an empty file. The ratio is
that of a command's wall time to `python p.py` of the same round, so a slow moment of the machine hits both.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import describe_machine, markdown, ratio

PYTHON = sys.executable
TFLAUNCH = str(Path(sys.executable).with_name("tflaunch"))

# What the project promises: a ratio, or seconds for the whole process.
MAX_RATIO = {"tflaunch run p.py": 3.0, "tflaunch run -q --cpus 2 p.py": 7.0}
MAX_SECONDS = 0.4

TYPER_PROGRAM = """
import os, sys, typer

def main(script: str):
    os.execv(sys.executable, [sys.executable, script])

typer.run(main)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description="The cost of a start.")
    parser.add_argument("--rounds", type=int, default=20, help="runs of each command (default 20)")
    rounds = parser.parse_args().rounds
    print(describe_machine())
    with tempfile.TemporaryDirectory() as directory:
        commands = make_commands(Path(directory))
        seconds = measure(commands, rounds)
    reference = seconds["python p.py"]
    rows = []
    for name, values in seconds.items():
        median_ratio = statistics.median(value / base for value, base in zip(values, reference, strict=True))
        bound, is_met = "", True
        if name in MAX_RATIO:
            bound, is_met = f"ratio <= {MAX_RATIO[name]}", median_ratio <= MAX_RATIO[name]
        elif name.startswith("tflaunch explain"):
            bound, is_met = f"< {MAX_SECONDS} s", statistics.median(values) < MAX_SECONDS
        verdict = f"{bound}: {'met' if is_met else 'NOT MET'}" if bound else ""
        rows.append([f"`{name}`", f"{1000 * statistics.median(values):.1f}", ratio(values, reference), verdict])
    missing = [name for name in ("numactl", "taskset") if not shutil.which(name)]
    missing += [name for name in ("torch",) if importlib.util.find_spec(name) is None]
    print(f"missing   {', '.join(missing) or 'nothing'}\n")
    print(markdown(["command", "median ms", "ratio (quartiles)", "bound of the project"], rows))
    print(f"\n{rounds} rounds")


def make_commands(directory: Path) -> dict[str, list[str]]:
    """The commands by the name they get in the table; the first is the reference."""
    script = directory / "p.py"
    script.touch()
    typer_program = directory / "typer_program.py"
    typer_program.write_text(TYPER_PROGRAM)
    commands = {
        "python p.py": [PYTHON, str(script)],
        "tflaunch run p.py": [TFLAUNCH, "run", str(script)],
        "tflaunch run -q --cpus 2 p.py": [TFLAUNCH, "run", "-q", "--cpus", "2", str(script)],
        "a typer program that execs p.py": [PYTHON, str(typer_program), str(script)],
    }
    if shutil.which("numactl"):
        commands["numactl --localalloc python p.py"] = ["numactl", "--localalloc", PYTHON, str(script)]
    if shutil.which("taskset"):
        cpu = str(min(os.sched_getaffinity(0)))
        commands[f"taskset -c {cpu} python p.py"] = ["taskset", "-c", cpu, PYTHON, str(script)]
    if importlib.util.find_spec("torch") is not None:
        name = "python -m torch.backends.xeon.run_cpu p.py"
        commands[name] = [PYTHON, "-m", "torch.backends.xeon.run_cpu", str(script)]
    for module in ("typing", "dataclasses", "fractions"):
        commands[f'python -c "import {module}"'] = [PYTHON, "-c", f"import {module}"]
    commands["tflaunch explain --json"] = [TFLAUNCH, "explain", "--json"]
    for cpus, nodes, sockets in ((256, 8, 2), (1152, 16, 8)):
        tree = directory / f"{cpus}-cpus"
        make_tree(tree, cpus, nodes, sockets)
        commands[f"tflaunch explain --json, {cpus} CPUs"] = [TFLAUNCH, "explain", "--json", "--sysroot", str(tree)]
    return commands


def make_tree(root: Path, cpus: int, nodes: int, sockets: int) -> None:
    """A made-up server: two threads a core, numbered as Linux does on x86 (first all first threads), no hybrid."""
    cores = cpus // 2
    blocks = []
    for cpu in range(cpus):
        core, package = cpu % cores, cpu % cores * sockets // cores
        write(root, f"sys/devices/system/cpu/cpu{cpu}/topology/core_cpus_list", f"{core},{core + cores}")
        write(root, f"sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id", f"{package}")
        write(root, f"sys/devices/system/cpu/cpu{cpu}/cpufreq/cpuinfo_max_freq", "3500000")
        flags = "fma avx2 avx512f " + " ".join(f"flag{number}" for number in range(120))
        blocks.append(f"processor\t: {cpu}\nphysical id\t: {package}\nmodel name\t: Made-up CPU\nflags\t\t: {flags}\n")
    for node in range(nodes):
        first, last = cores * node // nodes, cores * (node + 1) // nodes - 1
        members = f"{first}-{last},{first + cores}-{last + cores}"
        write(root, f"sys/devices/system/node/node{node}/cpulist", members)
    write(root, "sys/devices/system/cpu/online", f"0-{cpus - 1}")
    write(root, "proc/cpuinfo", "\n".join(blocks))
    write(root, "proc/self/status", f"Cpus_allowed_list:\t0-{cpus - 1}")
    write(root, "proc/self/cgroup", "0::/")
    write(root, "proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw")
    write(root, "sys/fs/cgroup/cgroup.controllers", "cpuset cpu memory")
    write(root, "sys/fs/cgroup/cpu.max", "6400000 100000")


def write(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text + "\n")


def measure(commands: dict[str, list[str]], rounds: int) -> dict[str, list[float]]:
    """Wall seconds of each command in each round.

    A round before them warms the caches and writes the bytecode of modules that changed, as pip does when it installs
    a package. With PYTHONDONTWRITEBYTECODE a checkout that was edited would be compiled anew at every start.
    """
    left_out = ("TFLAUNCH_", "PYTHONDONTWRITEBYTECODE")
    environ = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for number in range(rounds + 1):
        for name, argv in commands.items():
            start = time.perf_counter()
            done = subprocess.run(argv, env=environ, check=False, capture_output=True, text=True)
            elapsed = time.perf_counter() - start
            if done.returncode:
                raise SystemExit(f"{name} failed:\n{done.stderr}")
            if number:
                seconds[name].append(elapsed)
    return seconds


if __name__ == "__main__":
    main()
