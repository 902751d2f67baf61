"""How near tflaunch's plan is to the best setting, and how it stands against what others choose.

    sudo .venv/bin/python bench/policy.py [--rounds 5] [--limit 'quota 1'] [--smoke] [--output DIRECTORY]

Nine programs and one of large convolutions (programs.py), under quotas of 0.5, 1, 1.5 and 2 CPUs, a cpuset of one, and
no limit, on this machine as it is and as one with 64 CPUs, with every intra-op {1,2,3,4} x inter-op {1,2,4}, with the
view and without, and with what other tools choose (contenders.py). Each setting is one process that stays, in a control
group of its own; the limit of all groups is changed between the turns, and the settings of a program run one after the
other, in another order each round.

Each turn is written at once as a line of policy.jsonl, and each start as a line with the machine. Started again, it
goes on where it was stopped; when nothing is missing, it asks tflaunch for its plans and writes the results: policy.txt
and policy.svg (report.py). With TF_ENABLE_ONEDNN_OPTS=1 it measures the kernels that TensorFlow turns on by itself on
CPUs with AVX512_VNNI and the like.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import report
from common import build_many_cpus, describe_machine, percentile, versions
from contenders import (
    BLAS,
    EMULATED,
    EMULATED_CPUS,
    INFERENCE,
    LIMITS,
    PROGRAMS,
    Host,
    Limit,
    Setting,
    as_it_is,
    cells,
    hosts_under,
    seen,
)
from group import Group
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from session import Measurement, Patience, Session, plain_environ

from tflaunch.view import find_library

RESULTS = Path(__file__).with_name("results")
RUN = str(Path(sys.executable).with_name("tflaunch"))

# A p99 is that of few requests and spreads more than a rate, so inference is measured so many times as often.
MORE_ROUNDS = 2


class Turn(NamedTuple):
    """What is measured in one turn."""

    round: int
    limit: Limit
    program: str
    setting: Setting


def main() -> None:
    parser = argparse.ArgumentParser(description="The plan against every setting, and against what others choose.")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each setting (default 5), of inference twice")
    parser.add_argument("--seconds", type=float, default=0.4, help="length of a turn (default 0.4)")
    parser.add_argument("--patience", type=float, default=600, help=Patience.__doc__)
    parser.add_argument(
        "--limit", action="append", choices=[limit.name for limit in LIMITS], help="may be repeated (default all)"
    )
    parser.add_argument("--output", type=Path, help="directory of the results (default bench/results)")
    parser.add_argument("--smoke", action="store_true", help="a small part, to see that it works: no figure counts")
    arguments = parser.parse_args()
    if (arguments.smoke or arguments.limit) and arguments.output is None:
        parser.error("--smoke and --limit need an --output of their own")
    output = arguments.output or RESULTS
    # Ended by SIGTERM, the groups are removed as they are by ^C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)

    here = as_it_is()
    programs, rounds, seconds = (*PROGRAMS, *BLAS), arguments.rounds, arguments.seconds
    if arguments.smoke:
        programs, rounds, seconds = ("infer", "data"), 2, 0.05
        arguments.limit, arguments.patience = ["quota 1"], 0
    limits = [limit for limit in LIMITS if arguments.limit is None or limit.name in arguments.limit]
    output.mkdir(parents=True, exist_ok=True)
    raw = output / "policy.jsonl"
    conditions = {"versions": versions(), "seconds": seconds, "onednn": os.environ.get("TF_ENABLE_ONEDNN_OPTS")}
    _, turns = read(raw, conditions)
    done = {key_of(line) for line in turns}
    with tempfile.TemporaryDirectory() as directory:
        many_cpus = build_many_cpus(Path(directory), EMULATED_CPUS)
        plans = {
            (limit, host, mode): ask(limit, host, mode, many_cpus)
            for limit in limits
            for host in hosts_under(limit, here)
            for mode in report.MODES
        }
        wanted = [
            Turn(number, limit, program, setting)
            for number in range(rounds * MORE_ROUNDS)
            for limit in limits
            for program, settings in cells(
                limit, here, programs, [plan for key, plan in plans.items() if key[0] == limit], arguments.smoke
            ).items()
            if number < rounds or program in INFERENCE
            for setting in rotated(settings, number)
        ]
        missing = [turn for turn in wanted if key_of(as_line(turn)) not in done]
        print(describe_machine())
        print(f"turns     {len(wanted)} of {seconds:g} s, {len(missing)} to be measured", flush=True)
        if missing:
            with raw.open("a") as lines:
                print(json.dumps({"machine": describe_machine()} | conditions), file=lines, flush=True)
                for line in measure(missing, seconds, Patience(arguments.patience), many_cpus):
                    print(json.dumps(line), file=lines, flush=True)
    machines, turns = read(raw, conditions)
    keys = {key_of(as_line(turn)) for turn in wanted}  # a longer measurement may have been stopped in a round
    report.write(output, machines, [line for line in turns if key_of(line) in keys], plans, here)


def read(raw: Path, conditions: Mapping[str, object]) -> tuple[list[str], list[dict]]:
    """What was measured so far: the machine at each start, and the turns. All under the same conditions."""
    try:
        lines = [json.loads(line) for line in raw.read_text().splitlines()] if raw.exists() else []
    except json.JSONDecodeError as error:
        raise SystemExit(
            f"{raw} has a line that is no JSON ({error})\nremove the line to go on with the others"
        ) from None
    starts = [line for line in lines if "machine" in line]
    for start in starts:
        for name, value in conditions.items():
            if start.get(name) != value:
                raise SystemExit(
                    f"{raw} was measured with {name} {start.get(name)}\nmove it away to measure with {name} {value}"
                )
    return [start["machine"] for start in starts], [line for line in lines if "machine" not in line]


def as_line(turn: Turn) -> dict[str, object]:
    return {"round": turn.round, "limit": turn.limit.name, "program": turn.program, "setting": list(turn.setting)}


def key_of(line: Mapping) -> tuple[object, ...]:
    return line["round"], line["limit"], line["program"], *line["setting"]


def rotated(settings: list[Setting], number: int) -> list[Setting]:
    """In another order each round: from another first one, and every other time backwards."""
    first = number * 5 % len(settings)
    turned = settings[first:] + settings[:first]
    return turned[::-1] if number % 2 else turned


def measure(turns: list[Turn], seconds: float, patience: Patience, many_cpus: str) -> Iterator[dict[str, object]]:
    """The turns, one after the other, each as a line."""
    with (
        contextlib.ExitStack() as stack,
        Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            speed_estimate_period=600,
        ) as progress,
    ):
        needed: dict[Setting, dict[str, None]] = {}
        for turn in turns:
            needed.setdefault(turn.setting, {})[turn.program] = None
        bar = progress.add_task("start", total=len(turns))
        sessions = {
            setting: stack.enter_context(Session(str(number), None, [], variables_of(setting, many_cpus)))
            for number, setting in enumerate(needed)
        }
        warm_up(sessions, needed, lambda name: progress.update(bar, description=f"build {name}"))
        limit = None
        for turn in turns:
            progress.update(bar, description=f"round {turn.round + 1}, {turn.limit.name}, {turn.program}")
            if limit != turn.limit:
                limit = turn.limit
                for session in sessions.values():
                    put_under(session, limit)
            yield as_line(turn) | figures(patience.measure(sessions[turn.setting], turn.program, seconds))
            progress.advance(bar)


def variables_of(setting: Setting, many_cpus: str) -> dict[str, str]:
    """The environment of a session."""
    variables = {}
    if setting.intra is not None:
        variables |= {"TF_NUM_INTRAOP_THREADS": str(setting.intra), "TF_NUM_INTEROP_THREADS": str(setting.inter)}
    if setting.omp is not None:
        variables |= {"OMP_NUM_THREADS": str(setting.omp)}
    if setting.sees == EMULATED_CPUS:
        variables |= {"LD_PRELOAD": many_cpus}
    elif setting.sees is not None:
        library = find_library()
        if library.path is None:
            raise SystemExit(f"the view is not available: {library.problem}")
        variables |= {"LD_PRELOAD": str(library.path), "TFLAUNCH_VIEW_CPUS": str(setting.sees)}
    return variables


def warm_up(
    sessions: Mapping[Setting, Session], needed: Mapping[Setting, Mapping[str, None]], tell: Callable[[str], None]
) -> None:
    """Let all sessions build each program, side by side."""
    for program in dict.fromkeys(program for programs in needed.values() for program in programs):
        tell(program)
        building = [session for setting, session in sessions.items() if program in needed[setting]]
        for session in building:
            session.start(program, 0.01)
        for session in building:
            session.finish()


def put_under(session: Session, limit: Limit) -> None:
    session.group.set_quota(limit.quota)
    allowed = sorted(os.sched_getaffinity(0))
    session.allow(set(allowed[: limit.cpuset]))


def figures(measured: Measurement) -> dict[str, float]:
    """What is kept of a turn."""
    milliseconds = [1000 * duration for duration in measured.durations]
    return {
        "rate": round(measured.steps_per_second(), 3),
        "p50_ms": round(statistics.median(milliseconds), 3),
        "p99_ms": round(percentile(milliseconds, 99), 3),
        "steps": len(milliseconds),
        "throttled": round(measured.throttled, 3),
        "throttled_s": round(measured.throttled_seconds, 4),
        "threads": measured.threads,
        "peak_mib": round(measured.peak_mib),
        "others": round(measured.others, 3),
    }


def ask(limit: Limit, host: Host, mode: str, many_cpus: str) -> Setting:
    """The plan of the real command under the real limit."""
    environ = plain_environ() | ({"LD_PRELOAD": many_cpus} if host == EMULATED and not limit.cpuset else {})
    cpus = sorted(os.sched_getaffinity(0))[: limit.cpuset]
    with Group(f"tflaunch-bench-{os.getpid()}-plan", limit.quota) as group:
        command = group.command([RUN, "explain", "--json", "--mode", mode])
        answer = subprocess.run(
            command, env=environ, check=True, capture_output=True, preexec_fn=lambda: os.sched_setaffinity(0, cpus)
        )
    document = json.loads(answer.stdout)
    view = document["view"] and document["view"]["cpus"]
    plan = document["plan"]
    sees = seen(limit, host) if view is None else view if view < as_it_is().cpus else None
    return Setting(plan["intra_op"]["value"], plan["inter_op"]["value"], sees)


if __name__ == "__main__":
    main()
