"""What chose KMP_BLOCKTIME: how long idle OpenMP workers spin, under a CPU quota, in a TensorFlow built with OpenMP.

    python3.11 -m venv build/intel && build/intel/bin/pip install intel-tensorflow==2.14.0
    sudo .venv/bin/python bench/blocktime.py --python build/intel/bin/python [--rounds 5] [--seconds 1]

The programs run with OMP_NUM_THREADS and intra-op 2, inter-op 2, in turns with KMP_BLOCKTIME 0, 1, 200 (the runtime's
own default) and with nothing set.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import statistics
import subprocess

from common import describe_machine, markdown, ratio
from session import Measurement, Patience, Session, disturbance, percentile_ms, take_turns

PROGRAMS = ("cnn", "mlp", "matmul", "infer", "vision", "data")
BLOCKTIMES = ("1", "0", "200", "not set")
QUOTAS = (1.0, 1.5, 2.0)


def main() -> None:
    parser = argparse.ArgumentParser(description="KMP_BLOCKTIME under a CPU quota.")
    parser.add_argument("--python", required=True, help="an interpreter whose TensorFlow is built with OpenMP")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each program and setting (default 5)")
    parser.add_argument("--seconds", type=float, default=1.0, help="length of a turn (default 1)")
    parser.add_argument("--patience", type=float, default=120, help=Patience.__doc__)
    arguments = parser.parse_args()
    # Ended by SIGTERM, the groups are removed as they are by ^C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    print(describe_machine())
    print(f"measured  {versions_of(arguments.python)}\n", flush=True)

    rows, everything = [], []
    patience = Patience(arguments.patience)
    with contextlib.ExitStack() as stack:
        sessions = {
            blocktime: stack.enter_context(
                Session(f"blocktime-{number}", None, [], variables_of(blocktime), arguments.python)
            )
            for number, blocktime in enumerate(BLOCKTIMES)
        }
        for quota in QUOTAS:
            for session in sessions.values():
                session.group.set_quota(quota)
            for program, turns in take_turns(sessions, PROGRAMS, arguments.rounds, arguments.seconds, patience).items():
                rates = {name: [turn.steps_per_second() for turn in found] for name, found in turns.items()}
                ratios = [ratio(rates["1"], rates[name]) for name in BLOCKTIMES[1:]]
                rows.append([f"{quota:g}", program, *(cell(turns[name]) for name in BLOCKTIMES), *ratios])
                everything += [turn for found in turns.values() for turn in found]
    print(markdown(["quota", "program", *BLOCKTIMES, *(f"1 to {name}" for name in BLOCKTIMES[1:])], rows))
    print(
        "\nsteps a second · p99 of a step in ms · share of throttled periods\n"
        "ratios of the steps a second in the same round: median (quartiles)\n"
        f"{arguments.rounds} turns of {arguments.seconds:g} s each; {disturbance(everything)}"
    )


def variables_of(blocktime: str) -> dict[str, str]:
    pools = {"OMP_NUM_THREADS": "2", "TF_NUM_INTRAOP_THREADS": "2", "TF_NUM_INTEROP_THREADS": "2"}
    return pools | ({} if blocktime == "not set" else {"KMP_BLOCKTIME": blocktime})


def versions_of(python: str) -> str:
    """Of what is measured, which is not the environment of this script."""
    freeze = subprocess.run([python, "-m", "pip", "freeze"], check=True, capture_output=True, text=True).stdout.split()
    wanted = ("intel-tensorflow", "intel_tensorflow", "tensorflow", "keras", "numpy", "zentf")
    return " ".join(line for line in freeze if line.partition("==")[0] in wanted)


def cell(turns: list[Measurement]) -> str:
    rate = statistics.median(turn.steps_per_second() for turn in turns)
    throttled = statistics.median(turn.throttled for turn in turns)
    return f"{rate:.1f} · {percentile_ms(turns, 99):.3g} · {throttled:.0%}"


if __name__ == "__main__":
    main()
