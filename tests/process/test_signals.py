from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest
from shared import WAIT

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc/self/status")

PRINT_STATUS = ("print(open('/proc/self/status').read())",)

# Started between the test and the program: what a parent such as nohup, a shell's background job or a daemon does.
PARENTS = {
    "plain": "",
    "SIGHUP ignored (nohup)": "signal.signal(signal.SIGHUP, signal.SIG_IGN)",
    "SIGINT and SIGQUIT ignored (background job)": (
        "signal.signal(signal.SIGINT, signal.SIG_IGN); signal.signal(signal.SIGQUIT, signal.SIG_IGN)"
    ),
    "SIGTERM and SIGUSR1 ignored": (
        "signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.signal(signal.SIGUSR1, signal.SIG_IGN)"
    ),
    "SIGCHLD ignored": "signal.signal(signal.SIGCHLD, signal.SIG_IGN)",
    "signals blocked": "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGUSR2, signal.SIGINT})",
}


def parent(preparation: str) -> tuple[str, ...]:
    # SIGPIPE and SIGXFSZ as a shell's children have them; Python's own start ignored both.
    restore = "signal.signal(signal.SIGPIPE, signal.SIG_DFL); signal.signal(signal.SIGXFSZ, signal.SIG_DFL)"
    return (
        sys.executable,
        "-c",
        f"import os, signal, sys\n{restore}\n{preparation}\nos.execvp(sys.argv[1], sys.argv[1:])",
    )


def signals(status: str) -> dict[str, str]:
    """SigBlk (blocked), SigIgn (ignored), SigCgt (caught) and the like: proc_pid_status(5)."""
    lines = (line.partition(":") for line in status.splitlines())
    found = {key: value.strip() for key, _, value in lines if key in ("SigPnd", "ShdPnd", "SigBlk", "SigIgn", "SigCgt")}
    assert len(found) == 5, status
    return found


@pytest.mark.parametrize("preparation", PARENTS.values(), ids=PARENTS.keys())
class TestDispositions:
    """Blocked, ignored and caught signals are those of a program that was started without tflaunch."""

    @pytest.mark.parametrize("options", [(), ("--cpus", "1")], ids=["no option", "option"])
    def test_of_a_script(self, tflaunch, program, script, preparation, options):
        name = script(*PRINT_STATUS)
        without = tflaunch(name, prefix=(*parent(preparation), sys.executable))
        seen = tflaunch("run", *options, name, prefix=(*parent(preparation), program))
        assert signals(seen.stdout) == signals(without.stdout)

    def test_of_another_program(self, tflaunch, program, preparation):
        without = tflaunch("cat", "/proc/self/status", prefix=parent(preparation))
        seen = tflaunch("run", "--no-python", "cat", "/proc/self/status", prefix=(*parent(preparation), program))
        assert signals(seen.stdout) == signals(without.stdout)


def test_the_parents_of_these_tests_do_what_they_say(tflaunch):
    """Else the comparisons above would compare nothing."""
    bits = {
        name: signals(tflaunch("cat", "/proc/self/status", prefix=parent(preparation)).stdout)
        for name, preparation in PARENTS.items()
    }
    assert int(bits["plain"]["SigIgn"], 16) == 0
    assert int(bits["SIGHUP ignored (nohup)"]["SigIgn"], 16) == 1 << signal.SIGHUP - 1
    assert int(bits["signals blocked"]["SigBlk"], 16) & 1 << signal.SIGTERM - 1


@contextmanager
def started(command, environment, directory):
    """The process, once its script has said that it is ready."""
    with subprocess.Popen(
        command, cwd=directory, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            if process.poll() is None:
                process.kill()


@pytest.mark.parametrize("options", [(), ("--cpus", "1")], ids=["no option", "option"])
class TestDelivery:
    """A signal to the process that was started reaches the script, at once and only once."""

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP, signal.SIGWINCH])
    def test_a_handler_of_the_script_decides(self, program, environment, script, tmp_path, options, number):
        name = script(
            "import signal, sys, time",
            f"signal.signal({int(number)}, lambda received, frame: sys.exit(40 + received))",
            "print('ready', flush=True)",
            WAIT,
        )
        with started([program, "run", *options, name], environment, tmp_path) as process:
            process.send_signal(number)
            assert process.wait(timeout=60) == 40 + number

    def test_without_a_handler_it_ends_the_script(self, program, environment, script, tmp_path, options):
        name = script("import time", "print('ready', flush=True)", "time.sleep(60)")
        with started([program, "run", *options, name], environment, tmp_path) as process:
            process.terminate()
            assert process.wait(timeout=60) == -signal.SIGTERM

    def test_an_interrupt_is_pythons_own(self, program, environment, script, tmp_path, options):
        name = script(
            "import time",
            "try:",
            "    print('ready', flush=True)",
            f"    {WAIT}",
            "except KeyboardInterrupt:",
            "    print('interrupted')",
        )
        with started([program, "run", *options, name], environment, tmp_path) as process:
            process.send_signal(signal.SIGINT)
            output, _ = process.communicate(timeout=60)
        assert (process.returncode, output) == (0, "interrupted\n")

    def test_stop_and_continue(self, program, environment, script, tmp_path, options):
        name = script("import sys", "print('ready', flush=True)", "sys.exit(3)")
        with started([program, "run", *options, name], environment, tmp_path) as process:
            os.kill(process.pid, signal.SIGSTOP)
            os.kill(process.pid, signal.SIGCONT)
            assert process.wait(timeout=60) == 3


class TestInterruptedLauncher:
    """An interrupt before the script has started ends tflaunch without a traceback."""

    def test_while_it_reads_the_machine(self, inside, script):
        preparation = (
            "import signal, tflaunch.decision\n"
            "tflaunch.decision.read_machine = lambda files: signal.raise_signal(signal.SIGINT)"
        )
        done = inside(preparation, "run", script("print('ran')"))
        assert done.returncode in (130, -signal.SIGINT)
        assert (done.stdout, done.stderr) == ("", "")

    @pytest.mark.parametrize("command", ["explain", "env"])
    def test_of_other_commands(self, inside, command):
        preparation = (
            "import signal, tflaunch.topology\n"
            "tflaunch.topology.read_online = lambda files: signal.raise_signal(signal.SIGINT)"
        )
        done = inside(preparation, command)
        assert done.returncode in (130, -signal.SIGINT)
        assert "Traceback" not in done.stderr
        assert done.stdout == ""
