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


def plain_environ() -> dict[str, str]:
    """The environment of the measurement without what sizes thread pools."""
    return {key: value for key, value in os.environ.items() if not key.startswith(SIZED_BY)}


class Measurement(NamedTuple):
    """The steps of one program in one turn.

    durations: of each step, in seconds; elapsed: of the turn. throttled: the share of the periods in which it was, and
    for how long. peak_mib: the most memory that was resident. others: CPUs that other processes used meanwhile.
    """

    durations: list[float]
    elapsed: float
    threads: int
    throttled: float
    throttled_seconds: float
    peak_mib: float
    others: float

    def steps_per_second(self) -> float:
        return len(self.durations) / self.elapsed


class Session:
    """The programs under a quota, started by `launcher` ([] or ["tflaunch", "run"]) with `variables` added.

    cpus: None is no quota. python: the interpreter where there is no launcher.
    """

    def __init__(
        self,
        name: str,
        cpus: float | None,
        launcher: Sequence[str],
        variables: Mapping[str, str],
        python: str = sys.executable,
    ) -> None:
        self.group = Group(f"tflaunch-bench-{os.getpid()}-{name}", cpus)
        # LD_PRELOAD and the like are for the measured command, not for the shell in front of it.
        assignments = [f"{key}={value}" for key, value in variables.items()]
        command = ["env", *assignments, *(launcher or [python]), str(PROGRAMS)]
        self.process = subprocess.Popen(
            self.group.command(command), env=plain_environ(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def measure(self, program: str, seconds: float) -> Measurement:
        self.start(program, seconds)
        return self.finish()

    def start(self, program: str, seconds: float) -> None:
        """Tell it to run, which it does while finish() is not called yet."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{program} {seconds}\n")
        self.process.stdin.flush()

    def finish(self) -> Measurement:
        """Wait for what was started."""
        if self._answer() != "warm":
            raise SystemExit("not the answer that was expected")
        # Writing 5 makes the peak, VmHWM, what is resident now: proc_pid_clear_refs(5).
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")
        before = self.group.periods()
        start, others = time.monotonic(), self._ticks_of_others()
        answer = json.loads(self._answer())
        seconds_passed, others = time.monotonic() - start, self._ticks_of_others() - others
        after = self.group.periods()
        return Measurement(
            durations=answer["durations"],
            elapsed=answer["elapsed"],
            threads=answer["threads"],
            throttled=(after.throttled - before.throttled) / max(after.all - before.all, 1),
            throttled_seconds=after.throttled_seconds - before.throttled_seconds,
            peak_mib=self._peak_mib(),
            others=max(others / os.sysconf("SC_CLK_TCK") / seconds_passed, 0),
        )

    def allow(self, cpus: set[int]) -> None:
        """Set the affinity of all its threads, which is how a cpuset reaches a process: cpuset(7)."""
        for thread in os.listdir(f"/proc/{self.process.pid}/task"):
            os.sched_setaffinity(int(thread), cpus)

    def _peak_mib(self) -> float:
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:"))

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
        self.group.set_quota(None)  # ending takes a second of CPU time
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
        turns = [session.measure(program, seconds)]
        while turns[-1].others > DISTURBED_CPUS and self.seconds > 0:
            start = time.monotonic()
            while self.seconds > time.monotonic() - start and _cpus_in_use(0.3) > DISTURBED_CPUS:
                pass
            turns.append(session.measure(program, seconds))
            self.seconds -= time.monotonic() - start
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
