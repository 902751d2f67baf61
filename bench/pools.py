"""What the view adds to the variables: threads of the whole process, speed and throttling under a CPU quota.

    sudo .venv/bin/python bench/pools.py [--starts 3] [--rounds 3] [--quota 1] [--also '--inter-op 1']

TF_NUM_* size two pools of TensorFlow. Others, tf.data's among them, have a thread for each CPU that the process sees;
the view lets it see those of the quota. Compared are plain `python` (TensorFlow's default), the variables without the
view, the view without the variables, both, and both with the threads bound to cores. All of them run on an emulated
host with 64 CPUs (many_cpus.c), each in a control group of its own with the same real quota, measured in turns. They
are started anew several times, so that the luck of one process decides nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import signal
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from common import build_many_cpus, describe_machine, markdown, percentile, ratio
from session import Measurement, Patience, Session, disturbance, percentile_ms, take_turns

from tflaunch.view import find_library

CPUS = 64
PROGRAMS = {
    "cnn": "plain CNN training",
    "data": "tf.data + CNN training",
    "mlp": "MLP training",
    "transformer": "transformer training",
    "lstm": "LSTM training",
    "infer": "inference, batch of 1",
}
MEASURED = ("cnn", "data")
RUN = (str(Path(sys.executable).with_name("tflaunch")), "run")
DEFAULT, VARIABLES, BOTH = "TensorFlow's default", "variables only", "both"

# What the project wants of both together.
MAX_THREADS_AT_2_CPUS = 16
MIN_RATIO_TO_DEFAULT_AT_1_CPU = {"infer": 5.0}
MIN_RATIO_IN_TRAINING = 2.0


class Variant(NamedTuple):
    """How the programs are started: by plain python where the launcher is empty."""

    launcher: Sequence[str]
    variables: dict[str, str]


def main() -> None:
    parser = argparse.ArgumentParser(description="Variables, view and both under a CPU quota.")
    parser.add_argument("--starts", type=int, default=3, help="how often all of them are started (default 3)")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each after every start (default 3)")
    parser.add_argument("--seconds", type=float, default=2.0, help="length of a turn (default 2)")
    parser.add_argument("--patience", type=float, default=300, help=Patience.__doc__)
    parser.add_argument("--quota", type=float, action="append", help="CPUs, may be repeated (default 1 and 2)")
    parser.add_argument("--program", action="append", choices=PROGRAMS, help="may be repeated (default cnn and data)")
    parser.add_argument(
        "--also", action="append", default=[], help="options of one more `tflaunch run`, may be repeated"
    )
    arguments = parser.parse_args()
    # Ended by SIGTERM, the groups are removed as they are by ^C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    print(describe_machine())
    print(
        f"EMULATED  the host with {CPUS} CPUs is a preloaded library (bench/many_cpus.c); the quota is real\n",
        flush=True,
    )

    rows: list[list[str]] = []
    verdicts: list[str] = []
    everything: list[Measurement] = []
    patience = Patience(arguments.patience)
    programs = arguments.program or MEASURED
    with tempfile.TemporaryDirectory() as directory:
        many_cpus = build_many_cpus(Path(directory), CPUS)
        for quota in arguments.quota or [1.0, 2.0]:
            variants = make_variants(many_cpus, quota, arguments.also)
            measured = {program: {name: [] for name in variants} for program in programs}
            for _ in range(arguments.starts):
                for program, turns in compare(
                    variants, programs, quota, arguments.rounds, arguments.seconds, patience
                ).items():
                    for name, turns_of_one in turns.items():
                        measured[program][name] += turns_of_one
            for program, turns in measured.items():
                rows += [[f"{quota:g}", PROGRAMS[program], name, *_cells(turns, name)] for name in turns]
                verdicts += judge(quota, program, turns)
                everything += [turn for turns_of_one in turns.values() for turn in turns_of_one]
    header = ["quota", "program", "started with", "threads", "steps/s", "p50 ms", "p99 ms", "throttled"]
    print(markdown([*header, "to the default", "to variables only"], rows), flush=True)
    print(
        "\nsteps a second in the median turn, percentiles of a step over all turns, share of throttled periods\n"
        "ratios of the steps a second in the same round: median (quartiles)\n"
        f"{arguments.starts} x {arguments.rounds} turns of {arguments.seconds:g} s each; {disturbance(everything)}\n"
    )
    print("\n".join(verdicts))


def make_variants(many_cpus: str, quota: float, also: Sequence[str]) -> dict[str, Variant]:
    """What is compared, by the name it gets in the table. The emulation stands behind the view, as the kernel would."""
    many = {"LD_PRELOAD": many_cpus}
    library = find_library()
    if library.path is None:
        raise SystemExit(f"the view is not available: {library.problem}")
    view = {"LD_PRELOAD": f"{library.path}:{many_cpus}", "TFLAUNCH_VIEW_CPUS": str(math.ceil(quota))}
    variants = {
        DEFAULT: Variant([], many),
        VARIABLES: Variant([*RUN, "--view", "off"], many),
        "view only": Variant([], view),
        BOTH: Variant([*RUN], many),
    }
    # The kernel would show the bound program its CPUs; the emulation goes on showing 64.
    bind = ["--bind", "cores", "--bind-anyway", "--view", "on"]
    variants["both, bound"] = Variant([*RUN, *bind], many)
    return variants | {f"both, {options}": Variant([*RUN, *options.split()], many) for options in also}


def compare(
    variants: dict[str, Variant],
    programs: Sequence[str],
    quota: float,
    rounds: int,
    seconds: float,
    patience: Patience,
) -> dict[str, dict[str, list[Measurement]]]:
    """The turns of each program in each variant, in processes of their own."""
    with contextlib.ExitStack() as stack:
        sessions = {
            name: stack.enter_context(Session(str(number), quota, *variant))
            for number, (name, variant) in enumerate(variants.items())
        }
        return take_turns(sessions, programs, rounds, seconds, patience)


def judge(quota: float, program: str, turns: dict[str, list[Measurement]]) -> list[str]:
    """What the project wants of both together, and whether it was so."""
    rates = {name: _rates(turns[name]) for name in (DEFAULT, VARIABLES, BOTH)}
    wanted = [(f"at least as fast as {VARIABLES}", *_reaches(1.0, rates[BOTH], rates[VARIABLES]))]
    if quota == 1:
        factor = MIN_RATIO_TO_DEFAULT_AT_1_CPU.get(program, MIN_RATIO_IN_TRAINING)
        wanted.append((f"at least {factor} times the default", *_reaches(factor, rates[BOTH], rates[DEFAULT])))
    if quota == 2:
        threads = max(turn.threads for turn in turns[BOTH])
        verdict = "met" if threads <= MAX_THREADS_AT_2_CPUS else "NOT MET"
        wanted.append((f"at most {MAX_THREADS_AT_2_CPUS} threads", verdict, str(threads)))
    return [
        f"quota {quota:g}, {PROGRAMS[program]}, {BOTH}: {what}: {verdict}, {value}" for what, verdict, value in wanted
    ]


def _reaches(factor: float, rates: Sequence[float], to: Sequence[float]) -> tuple[str, str]:
    """Whether the median ratio of a round reaches the factor, or else the upper quartile does; and the ratio."""
    ratios = sorted(rate / reference for rate, reference in zip(rates, to, strict=True))
    if statistics.median(ratios) >= factor:
        return "met", ratio(rates, to)
    return "NOT MET" if percentile(ratios, 75) < factor else "within the spread", ratio(rates, to)


def _cells(turns: dict[str, list[Measurement]], name: str) -> list[str]:
    own = turns[name]
    return [
        str(max(turn.threads for turn in own)),
        f"{statistics.median(_rates(own)):.1f}",
        f"{percentile_ms(own, 50):.3g}",
        f"{percentile_ms(own, 99):.3g}",
        f"{statistics.median(turn.throttled for turn in own):.0%}",
        *("" if name == other else ratio(_rates(own), _rates(turns[other])) for other in (DEFAULT, VARIABLES)),
    ]


def _rates(turns: Sequence[Measurement]) -> list[float]:
    return [turn.steps_per_second() for turn in turns]


if __name__ == "__main__":
    main()
