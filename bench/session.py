"""programs.py running in a group of its own, to be measured whenever asked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, TypeVar

from common import percentile
from group import Group

PROGRAMS = Path(__file__).with_name("programs.py")

# What a caller of the measurement may have exported must not decide it.
SIZED_BY = ("TF_NUM_", "OMP_", "KMP_", "OPENBLAS_", "MKL_", "GOMP_", "TFLAUNCH_", "PYTHON_CPU_COUNT", "LD_PRELOAD")

# Of the measuring machine's CPUs. The kernel's own work and this script take a few hundredths.
DISTURBED_CPUS = 0.15

# How long a measured process may take to end.
ENDS_AFTER_SECONDS = 10

Name = TypeVar("Name")


class Measurement(NamedTuple):
    """The steps of one program in one turn.

    throttled: the share of the periods in which it was. others: CPUs that other processes used meanwhile.
    """

    durations: list[float]
    threads: int
    throttled: float
    others: float

    def steps_per_second(self) -> float:
        return len(self.durations) / sum(self.durations)


class Session:
    """The programs under a quota, started by `launcher` ([] or ["tflaunch", "run"]) with `variables` added."""

    def __init__(self, name: str, cpus: float, launcher: Sequence[str], variables: Mapping[str, str]) -> None:
        self.group = Group(f"tflaunch-bench-{os.getpid()}-{name}", cpus)
        environ = {key: value for key, value in os.environ.items() if not key.startswith(SIZED_BY)}
        # LD_PRELOAD and the like are for the measured command, not for the shell in front of it.
        assignments = [f"{key}={value}" for key, value in variables.items()]
        command = ["env", *assignments, *(launcher or [sys.executable]), str(PROGRAMS)]
        self.process = subprocess.Popen(
            self.group.command(command), env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def measure(self, program: str, seconds: float) -> Measurement:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{program} {seconds}\n")
        self.process.stdin.flush()
        if self._answer() != "warm":
            raise SystemExit(f"{program}: not the answer that was expected")
        periods, throttled = self.group.periods()
        start, others = time.monotonic(), self._ticks_of_others()
        answer = json.loads(self._answer())
        seconds_passed, others = time.monotonic() - start, self._ticks_of_others() - others
        periods_after, throttled_after = self.group.periods()
        share = (throttled_after - throttled) / max(periods_after - periods, 1)
        others_cpus = max(others / os.sysconf("SC_CLK_TCK") / seconds_passed, 0)
        return Measurement(answer["durations"], answer["threads"], share, others_cpus)

    def _ticks_of_others(self) -> int:
        """The CPU time of the machine less that of the measured process (proc_pid_stat(5)), in clock ticks."""
        own = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        return _busy_ticks() - sum(map(int, own))

    def _answer(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"the measured process ended with status {self.process.wait()}")
        return line.strip()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None):
        assert self.process.stdin is not None
        self.process.stdin.close()  # then it ends by itself and removes its temporary files
        try:
            self.process.wait(ENDS_AFTER_SECONDS)
        except subprocess.TimeoutExpired:
            pass
        finally:  # also after ^C while it waits
            self.process.kill()
            self.process.wait()
            self.group.remove()


class Patience:
    """Seconds to spend in all on waiting for a quiet machine and on repeating turns that were disturbed."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def measure(self, session: Session, program: str, seconds: float) -> Measurement:
        """The first undisturbed turn, or the least disturbed one when patience ends."""
        turns: list[Measurement] = []
        while not turns or (turns[-1].others > DISTURBED_CPUS and self.seconds > 0):
            start = time.monotonic()
            while self.seconds > time.monotonic() - start and _cpus_in_use(0.3) > DISTURBED_CPUS:
                pass
            waited = time.monotonic() - start
            turns.append(session.measure(program, seconds))
            self.seconds -= waited if len(turns) == 1 else time.monotonic() - start
        return min(turns, key=lambda turn: turn.others)


def take_turns(
    sessions: Mapping[Name, Session], programs: Sequence[str], rounds: int, seconds: float, patience: Patience
) -> dict[str, dict[Name, list[Measurement]]]:
    """The turns of each program in all sessions, in another order of the sessions each round."""
    turns: dict[str, dict[Name, list[Measurement]]] = {program: {name: [] for name in sessions} for program in programs}
    names = list(sessions)
    for number in range(rounds + 1):
        first = number % len(names)
        for program in programs:
            for name in names[first:] + names[:first]:
                if number == 0:  # builds the models
                    sessions[name].measure(program, 0.5)
                else:
                    turns[program][name].append(patience.measure(sessions[name], program, seconds))
    return turns


def _cpus_in_use(seconds: float) -> float:
    """CPUs of the machine that were busy, while nothing is measured."""
    ticks = _busy_ticks()
    time.sleep(seconds)
    return (_busy_ticks() - ticks) / os.sysconf("SC_CLK_TCK") / seconds


def _busy_ticks() -> int:
    """The CPU time of the whole machine, in clock ticks: proc_stat(5)."""
    user, nice, system, _, _, irq, softirq, steal = map(int, Path("/proc/stat").read_text().split()[1:9])
    return user + nice + system + irq + softirq + steal


def percentile_ms(turns: Sequence[Measurement], percent: float) -> float:
    """Over the steps of all turns."""
    return 1000 * percentile([duration for turn in turns for duration in turn.durations], percent)


def disturbance(turns: Sequence[Measurement]) -> str:
    """How quiet the machine was."""
    others = [turn.others for turn in turns]
    return f"other processes used {percentile(others, 50):.2f} CPUs in the median turn, {max(others):.2f} at most"
