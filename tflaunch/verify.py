"""`tflaunch verify`: runs TensorFlow under the plan and observes which pools it makes.

A fresh interpreter is observed in two independent ways, TensorFlow's own log and the growth of its threads
(probe.py); a user's script only by the log, which is taken out of what the user sees.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from tflaunch._namedtuple import NamedTuple
from tflaunch.builds import find_build
from tflaunch.decision import Decision
from tflaunch.environment import Change, apply_changes
from tflaunch.errors import TflaunchError
from tflaunch.files import Files
from tflaunch.launch import Command, check
from tflaunch.probe import MARK
from tflaunch.tensorflow_log import Pool, could_be_log, is_extra, parse_line, with_log
from tflaunch.verification import (
    Probe,
    Verification,
    make_fresh,
    make_of_script,
    planned_blas,
    planned_numbers,
    with_timeout,
    with_view,
    with_view_of_script,
)
from tflaunch.view import LIBRARY

# Importing TensorFlow takes seconds; on a throttled or emulated machine minutes.
PROBE_SECONDS = 600
# A line that looks like one of the log is held back for this long at most while the rest of it is missing.
HOLD_SECONDS = 0.1
# What a script that is asked to end has time for.
TERMINATION_SECONDS = 5
# For how long after the script's end its last lines may come.
DRAIN_SECONDS = 1
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
# Not -m: that would put the working directory first on the path, where a file may be named like a module. The single
# file is on nobody's path: behind all else, so that TensorFlow finds its own packages and not those inside the file.
START_PROBE = """
import sys
own, sys.path[:] = sys.argv[2], [entry for entry in sys.path if entry]
if own not in sys.path:
    sys.path.insert(0, own)
    import tflaunch.probe
    sys.path.append(sys.path.pop(0))
from tflaunch.probe import main
main(int(sys.argv[1]))
"""
OWN_DIRECTORY = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# The probe looks at pools of the CPU; it must take no memory of a GPU, nor count its threads.
NO_GPU = {"CUDA_VISIBLE_DEVICES": "-1", "HIP_VISIBLE_DEVICES": "-1"}


class NoTensorFlowError(TflaunchError):
    """TensorFlow cannot be imported."""

    exit_status = 3


class Run(NamedTuple):
    """How a script ran: its exit status as in a shell, the pools its log spoke of, its threads at the most.

    has_view: whether the library of the view was seen in the process.
    """

    status: int
    pools: tuple[Pool, ...]
    process_threads: int
    timed_out: bool
    has_view: bool


def verify_fresh(decision: Decision, environ: Mapping[str, str]) -> tuple[Verification, int]:
    """Observe a fresh interpreter under the plan; the document, and 0 when all is as planned, else 1.

    Where the plan has a view, a second interpreter without it is observed too, for its pools beside those of the first.
    """
    build = find_build()

    def observe(changes: tuple[Change, ...]) -> Verification:
        planned_environ = apply_changes(changes, environ)
        findings = probe(planned_environ)
        return make_fresh(planned_numbers(planned_environ), planned_blas(planned_environ), findings, build)

    if decision.view.cpus is None:
        verification = observe(decision.changes)
    else:
        # At the same time: each spends most of its seconds on importing TensorFlow.
        with ThreadPoolExecutor(2) as pool:
            verification, without = pool.map(observe, (decision.changes, decision.sizes))
        verification = with_view(verification, decision.view.cpus, without)
    return verification, 0 if verification["agrees"] else 1


def verify_script(
    decision: Decision, command: Command, environ: Mapping[str, str], timeout: float | None
) -> tuple[Verification, int]:
    """Run the script under the plan; the document, and the script's status, or 1 when that is 0 and its pools differ.

    timeout: seconds after which the script is ended and counts as a difference; None to wait for ever.
    """
    check(command)
    planned_environ = apply_changes(decision.changes, environ)
    run = run_script(command.argv(), planned_environ, timeout)
    build = find_build()
    verification = make_of_script(
        planned_numbers(planned_environ), run.pools, run.process_threads, decision.seen_cpus, build
    )
    if decision.view.cpus is not None:
        verification = with_view_of_script(verification, decision.view.cpus, is_loaded=run.has_view)
    if run.timed_out and timeout is not None:
        return with_timeout(verification, timeout), 1
    if build is None and not run.pools:
        return verification, run.status or NoTensorFlowError.exit_status
    return verification, run.status or (0 if verification["agrees"] else 1)


def probe(environ: Mapping[str, str]) -> Probe:
    """Observe a fresh interpreter. NoTensorFlowError where there is none; TflaunchError when it fails."""
    if not os.path.isdir("/proc/self/task"):
        raise TflaunchError("threads are counted in /proc/self/task, which is not here", "verify a script instead")
    reader, writer = os.pipe()
    with os.fdopen(reader) as findings_file:
        try:
            process = subprocess.Popen(
                [sys.executable, "-c", START_PROBE, str(writer), OWN_DIRECTORY],
                env={**with_log(environ), **NO_GPU},
                pass_fds=[writer],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )
        finally:
            os.close(writer)
        try:
            _, log = process.communicate(timeout=PROBE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise TflaunchError(
                f"TensorFlow did not make its pools within {PROBE_SECONDS} s",
                "try it again on a machine that is less busy",
            ) from None
        text = findings_file.read()
    lines = log.decode(errors="replace").split("\n")
    if not text:
        last = next((line for line in reversed(lines) if line.strip()), "no message")
        raise TflaunchError(
            f"TensorFlow ended with status {process.returncode}: {last}",
            "python -c 'import tensorflow' shows all of it",
        )
    findings = json.loads(text)
    if "import_error" in findings:
        raise NoTensorFlowError(
            f"TensorFlow cannot be imported: {findings['import_error']}",
            f"install tensorflow or tensorflow-cpu for {sys.executable}",
        )
    return Probe(logged=_logged_by_step(lines), **findings)


def _logged_by_step(lines: list[str]) -> dict[str, int]:
    """The first size that the log gives in the step that makes the pool."""
    logged: dict[str, int] = {}
    step = ""
    for line in lines:
        if line.startswith(MARK):
            step = line[len(MARK) :]
        pool = parse_line(line)
        if pool is not None and step.endswith(pool.name):
            logged.setdefault(step, pool.threads)
    return logged


def run_script(argv: list[str], environ: Mapping[str, str], timeout: float | None) -> Run:
    """Run the script to its end, or for `timeout` seconds; its streams are passed through, its log is read."""
    source, sink = _error_stream()
    # Descriptors that the caller has left open are for the script: <(...) of a shell, a job server, an MPI launcher.
    process = subprocess.Popen(argv, env=with_log(environ), stderr=sink, close_fds=False)
    os.close(sink)
    log_filter = LogFilter(environ)
    most_threads, has_view = 0, False
    timed_out_at: float | None = None
    start = time.monotonic()
    with _signals_passed_to(process):
        is_open = True
        while process.poll() is None:
            if is_open:
                is_open = _pass_on(source, log_filter)
            else:
                time.sleep(HOLD_SECONDS)
            most_threads = max(most_threads, len(Files().names(f"/proc/{process.pid}/task")))
            has_view = has_view or LIBRARY in (Files().read(f"/proc/{process.pid}/maps") or "")
            now = time.monotonic()
            if timed_out_at is not None and now > timed_out_at + TERMINATION_SECONDS:
                process.kill()
            elif timed_out_at is None and timeout is not None and now > start + timeout:
                timed_out_at = now
                process.terminate()
        # What is on its way still comes; a process that the script leaves behind may write for ever.
        end = time.monotonic() + DRAIN_SECONDS
        while is_open and time.monotonic() < end and select.select([source], [], [], 0)[0]:
            is_open = _pass_on(source, log_filter)
        _write(log_filter.release())
    os.close(source)
    status = process.returncode if process.returncode >= 0 else 128 - process.returncode
    return Run(status, tuple(log_filter.pools), most_threads, timed_out_at is not None, has_view)


class LogFilter:
    """Takes the extra lines out of a stream of bytes and remembers what they say."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.pools: list[Pool] = []
        self._environ = environ
        self._held = b""
        # Whether the beginning of the present line has been passed on, so that the rest must follow.
        self._is_begun = False

    def feed(self, data: bytes) -> bytes:
        """What of the data can be passed on."""
        *lines, last = (self._held + data).split(b"\n")
        passed = [kept for line in lines for kept in self._complete(line + b"\n")]
        self._held = last
        if last and (self._is_begun or not could_be_log(os.fsdecode(last))):
            passed.append(self.release())
        return b"".join(passed)

    def release(self) -> bytes:
        """The beginning of a line that is held back: nothing came after it."""
        held, self._held = self._held, b""
        self._is_begun = self._is_begun or bool(held)
        return held

    def _complete(self, line: bytes) -> Iterator[bytes]:
        if self._is_begun:
            self._is_begun = False
            yield line
            return
        text = os.fsdecode(line).rstrip("\r\n")
        pool = parse_line(text)
        if pool is not None:
            self.pools.append(pool)
        if not is_extra(text, self._environ):
            yield line


def _error_stream() -> tuple[int, int]:
    """A pipe for the script's standard error; a terminal where ours is one, so that it sees no difference."""
    if not os.isatty(2):
        return os.pipe()
    import fcntl
    import termios
    import tty

    source, sink = os.openpty()
    tty.setraw(sink)
    fcntl.ioctl(sink, termios.TIOCSWINSZ, fcntl.ioctl(2, termios.TIOCGWINSZ, bytes(8)))
    return source, sink


def _pass_on(source: int, log_filter: LogFilter) -> bool:
    """Pass on what comes within HOLD_SECONDS; False when no more can come."""
    if not select.select([source], [], [], HOLD_SECONDS)[0]:
        _write(log_filter.release())
        return True
    try:
        data = os.read(source, 65536)
    except OSError:  # a terminal whose other side is closed
        data = b""
    _write(log_filter.feed(data))
    return bool(data)


def _write(data: bytes) -> None:
    """Pass on to standard error; where nobody takes it, the script goes on all the same."""
    try:
        while data:
            data = data[os.write(2, data) :]
    except OSError:
        pass


@contextmanager
def _signals_passed_to(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Signals meant for the script reach it; the terminal sends its own (^C, ^\\) to all in the foreground itself."""

    def pass_on(number: int, _frame: object) -> None:
        if number not in (signal.SIGINT, signal.SIGQUIT) or not _is_foreground():
            process.send_signal(number)

    previous = {number: signal.signal(number, pass_on) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _is_foreground() -> bool:
    """Whether this process is in the foreground of a terminal."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)
