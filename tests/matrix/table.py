"""What each program of the matrix makes on a host of 64 CPUs, without the view and with it, as a table for the docs.

    python tests/matrix/table.py

The host is emulated (bench/many_cpus.c): only answers change, no speed is measured. tflaunch exports its variables on
both sides, so what differs is what no variable sizes. The first run makes the environments.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from runs import EMULATED_CPUS, ENVIRONMENTS, MATRIX, PROJECT, Outcome, new_lines, prepare, run

sys.path.append(str(PROJECT / "bench"))
from common import describe_machine, markdown


def main() -> None:
    """Run each program twice and print the table."""
    print(describe_machine().replace("bench/table.py", "tests/matrix/table.py"))
    for name, packages in ENVIRONMENTS.items():
        print(f"{name}: {' '.join(packages)}")
    print(f"\n{EMULATED_CPUS} CPUs seen: --cpus 2 --view off; 2 CPUs seen: --cpus 2 --view on\n", flush=True)
    rows = []
    with tempfile.TemporaryDirectory() as directory, prepare(Path(directory)) as places:
        for name, program in MATRIX.items():
            without, with_view = (
                run(program, places, view, 2, Path(directory), many_cpus=True) for view in ("off", "on")
            )
            made = differences(without.made, with_view.made)
            rows.append([name, told(without, with_view), made, describe_difference(without, with_view)])
    print(markdown(["program", "CPUs it is told", "what it makes", "result and status"], rows))


def told(without: Outcome, with_view: Outcome) -> str:
    """How many CPUs: one pair where all ways to ask give the same answers."""
    pairs = {(number, with_view.seen[name]) for name, number in without.seen.items()}
    if len(pairs) == 1:
        return "{} → {}".format(*pairs.pop())
    return differences(without.seen, with_view.seen)


def differences(without: dict[str, int], with_view: dict[str, int]) -> str:
    """Each number without the view and with it."""
    return ", ".join(f"{name} {number} → {with_view[name]}" for name, number in without.items())


def describe_difference(without: Outcome, with_view: Outcome) -> str:
    """Whether the program did the same."""
    different = []
    if with_view.result != without.result:
        different.append("another result")
    if with_view.status != without.status:
        different.append(f"status {without.status} → {with_view.status}")
    if new_lines(with_view.errors, without.errors):
        different.append("other messages")
    return ", ".join(different) or "the same"


if __name__ == "__main__":
    main()
