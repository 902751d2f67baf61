"""What `tflaunch run` gains under a CPU quota on a big host.

    sudo .venv/bin/python bench/throughput.py [--rounds 5] [--seconds 3] [--quota 0.5 --quota 1 --quota 1.5]

Compared are `python program.py` and `tflaunch run program.py`, each in a control group of its own with the same quota,
measured in turns. The host with many CPUs is emulated: a preloaded library (many_cpus.c) tells both of them that they
may use 64 CPUs, as a program in a container with a quota on such a host is told. The threads they make share the CPUs
of the machine that measures, and the quota is a real one.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from common import build_many_cpus, describe_machine, markdown, ratio
from session import Measurement, Patience, Session, disturbance, percentile_ms, take_turns

CPUS = 64
PROGRAMS = {"cnn": "training, small CNN", "infer": "inference, batch of 1", "data": "training from tf.data"}
TFLAUNCH = Path(sys.executable).with_name("tflaunch")


def main() -> None:
    parser = argparse.ArgumentParser(description="tflaunch run against plain python under a CPU quota.")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each program (default 5)")
    parser.add_argument("--seconds", type=float, default=3.0, help="length of a turn (default 3)")
    parser.add_argument("--patience", type=float, default=120, help=Patience.__doc__)
    parser.add_argument("--quota", type=float, action="append", help="CPUs, may be repeated (default 0.5, 1 and 1.5)")
    arguments = parser.parse_args()
    # Ended by SIGTERM, the groups are removed as they are by ^C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    print(describe_machine())
    print(
        f"EMULATED  the host with {CPUS} CPUs is a preloaded library (bench/many_cpus.c); the quota is real\n",
        flush=True,
    )

    with tempfile.TemporaryDirectory() as directory:
        rows, turns = [], []
        patience = Patience(arguments.patience)
        variables = {"LD_PRELOAD": build_many_cpus(Path(directory), CPUS)}
        for quota in arguments.quota or [0.5, 1.0, 1.5]:
            measured = compare(quota, arguments.rounds, arguments.seconds, patience, variables)
            rows += [[f"{quota:g}", PROGRAMS[program], *_cells(*both)] for program, both in measured.items()]
            turns += [turn for both in measured.values() for turns_of_one in both for turn in turns_of_one]
    header = ["CPU quota", "program", "`python`", "`tflaunch run`", "ratio (quartiles)", "threads", "throttled periods"]
    print(markdown(header, rows), flush=True)
    print(
        "\nsteps (or requests) a second in the median turn, p99 of a step in ms over all turns; ratio of the steps a "
        f"second\n{arguments.rounds} turns of {arguments.seconds:g} s each; {disturbance(turns)}"
    )


def compare(
    quota: float, rounds: int, seconds: float, patience: Patience, variables: dict[str, str]
) -> dict[str, tuple[list[Measurement], list[Measurement]]]:
    """The turns of each program without and with tflaunch."""
    with contextlib.ExitStack() as stack:
        sessions = {
            name: stack.enter_context(Session(name, quota, launcher, variables))
            for name, launcher in (("plain", []), ("tflaunch", [str(TFLAUNCH), "run"]))
        }
        turns = take_turns(sessions, list(PROGRAMS), rounds, seconds, patience)
    return {program: (of_program["plain"], of_program["tflaunch"]) for program, of_program in turns.items()}


def _cells(without: Sequence[Measurement], with_tflaunch: Sequence[Measurement]) -> list[str]:
    both = (without, with_tflaunch)
    rates = [[turn.steps_per_second() for turn in turns] for turns in both]
    threads = [str(max(turn.threads for turn in turns)) for turns in both]
    throttled = [f"{statistics.median(turn.throttled for turn in turns):.0%}" for turns in both]
    return [
        *(f"{statistics.median(rate):.1f}/s, {percentile_ms(turns, 99):.3g} ms" for rate, turns in zip(rates, both)),
        ratio(rates[1], rates[0]),
        " → ".join(threads),
        " → ".join(throttled),
    ]


if __name__ == "__main__":
    main()
