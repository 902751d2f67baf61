"""What chose the rounding and the number of inter-op threads: intra-op x inter-op under a CPU quota.

    sudo .venv/bin/python bench/grid.py [--rounds 5] [--seconds 1] [--quota 1 --quota 1.5]

The programs (programs.py) are measured with intra-op/inter-op 1/1, 1/2, 2/1 and 2/2 in turns, each in a control
group of its own with the same quota. Two ratios decide:

    2/2 to 1/2    what a second intra-op thread brings: above 1 at a quota of 1.5, rounding 1.5 up pays
    1/2 to 1/1    what a second inter-op thread brings or costs
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import statistics

from common import describe_machine, markdown, ratio
from session import Measurement, Patience, Session, disturbance, percentile_ms, take_turns

PROGRAMS = ("cnn", "mlp", "wide", "matmul", "infer", "data")
SETTINGS = ((1, 1), (1, 2), (2, 1), (2, 2))

Turns = dict[tuple[int, int], list[Measurement]]


def main() -> None:
    parser = argparse.ArgumentParser(description="The grid of intra-op and inter-op threads under a CPU quota.")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each program and setting (default 5)")
    parser.add_argument("--seconds", type=float, default=1.0, help="length of a turn (default 1)")
    parser.add_argument("--patience", type=float, default=120, help=Patience.__doc__)
    parser.add_argument("--quota", type=float, action="append", help="CPUs, may be repeated (default 1 and 1.5)")
    arguments = parser.parse_args()
    # Ended by SIGTERM, the groups are removed as they are by ^C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    print(describe_machine() + "\n", flush=True)

    rows, everything = [], []
    patience = Patience(arguments.patience)
    for quota in arguments.quota or [1.0, 1.5]:
        for program, turns in measure(quota, arguments.rounds, arguments.seconds, patience).items():
            rows.append([f"{quota:g}", program, *(_cell(turns[setting]) for setting in SETTINGS), *_ratios(turns)])
            everything += [turn for measurements in turns.values() for turn in measurements]
    header = ["quota", "program", *(f"{intra}/{inter}" for intra, inter in SETTINGS), "2/2 to 1/2", "1/2 to 1/1"]
    print(markdown(header, rows))
    print(
        "\nintra-op/inter-op threads: steps a second · p99 of a step in ms · share of throttled periods\n"
        "ratios of the steps a second in the same round: median (quartiles)\n"
        f"{arguments.rounds} turns of {arguments.seconds:g} s each; "
        f"{disturbance(everything)}"
    )


def measure(quota: float, rounds: int, seconds: float, patience: Patience) -> dict[str, Turns]:
    """All programs with all settings in turns, in another order of the settings each round."""
    with contextlib.ExitStack() as stack:
        sessions = {
            (intra, inter): stack.enter_context(
                Session(
                    f"{intra}-{inter}",
                    quota,
                    [],
                    {"TF_NUM_INTRAOP_THREADS": str(intra), "TF_NUM_INTEROP_THREADS": str(inter)},
                )
            )
            for intra, inter in SETTINGS
        }
        return take_turns(sessions, PROGRAMS, rounds, seconds, patience)


def _cell(turns: list[Measurement]) -> str:
    rate = statistics.median(turn.steps_per_second() for turn in turns)
    throttled = statistics.median(turn.throttled for turn in turns)
    return f"{rate:.1f} · {percentile_ms(turns, 99):.3g} · {throttled:.0%}"


def _ratios(turns: Turns) -> list[str]:
    rates = {setting: [turn.steps_per_second() for turn in measurements] for setting, measurements in turns.items()}
    return [ratio(rates[2, 2], rates[1, 2]), ratio(rates[1, 2], rates[1, 1])]


if __name__ == "__main__":
    main()
