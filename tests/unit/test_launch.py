from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys

import pytest

from tflaunch import launch
from tflaunch.decision import decide
from tflaunch.errors import CannotRunError, NotFoundError, TflaunchError, UsageError
from tflaunch.files import Files
from tflaunch.launch import Command, run, summary
from tflaunch.options import Options, parse_options


@pytest.fixture
def machine(tmp_path):
    """A machine of four CPUs on four cores in a v2 group with this cpu.max, and some allowed CPUs."""

    def make(cpu_max: str = "max 100000", allowed: str = "0-3") -> Files:
        files = {
            "proc/self/cgroup": "0::/pod\n",
            "proc/self/mountinfo": "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
            "proc/self/status": f"Cpus_allowed_list:\t{allowed}\n",
            "sys/devices/system/cpu/online": "0-3\n",
            "sys/fs/cgroup/cgroup.controllers": "cpuset cpu\n",
            "sys/fs/cgroup/pod/cpu.max": f"{cpu_max}\n",
            **{f"sys/devices/system/cpu/cpu{cpu}/topology/core_cpus_list": f"{cpu}\n" for cpu in range(4)},
        }
        for path, text in files.items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text)
        return Files(str(tmp_path))

    return make


@pytest.fixture(autouse=True)
def library(view_library):
    view_library("/opt/tflaunch/libtflaunch_view.so")


def said(files: Files, environ: dict[str, str] | None = None, **options: str) -> str:
    return summary(decide(files, parse_options(options, environ or {}), environ or {}))


class TestSummary:
    """The line on start has the limit, where it comes from, and the values that the program gets."""

    def test_quota(self, machine):
        line = said(machine("150000 100000"))
        assert line.startswith("1.5 CPUs (")
        assert "/sys/fs/cgroup/pod/cpu.max: 150000 100000" in line
        assert line.endswith(": intra-op 2, inter-op 2, OMP 2, sees 2 of 4 CPUs")

    @pytest.mark.parametrize(
        ("cpu_max", "limit"),
        [
            ("100000 100000", "1 CPU "),
            ("50000 100000", "0.5 CPUs "),
            ("200000 100000", "2 CPUs "),
            ("100000 300000", "0.333 CPUs "),
            ("99999 100000", "1 CPU "),
        ],
    )
    def test_the_limit_in_words(self, machine, cpu_max, limit):
        assert said(machine(cpu_max)).startswith(limit)

    def test_affinity(self, machine):
        line = said(machine(allowed="1,3"))
        assert line.startswith("2 CPUs (the allowed CPUs")
        assert "no quota" in line
        assert line.endswith(": intra-op 2, inter-op 2, OMP 2")

    def test_option(self, machine):
        assert said(machine(), cpus="3") == "3 CPUs (--cpus 3): intra-op 3, inter-op 2, OMP 3, sees 3 of 4 CPUs"

    def test_variable_of_tflaunch(self, machine):
        line = said(machine(), {"TFLAUNCH_CPUS": "1500m"})
        assert line == "1.5 CPUs (TFLAUNCH_CPUS=1500m): intra-op 2, inter-op 2, OMP 2, sees 2 of 4 CPUs"

    def test_explicit_values(self, machine):
        line = said(machine(), intra_op="4", inter_op="3", omp="1")
        assert line.endswith(": intra-op 4, inter-op 3, OMP 1")

    def test_kept_values_are_marked(self, machine):
        line = said(machine(), {"TF_NUM_INTRAOP_THREADS": "3", "OMP_NUM_THREADS": "4,3,2"}, cpus="1")
        assert line.endswith(": intra-op 3 (exported), inter-op 2, OMP 4,3,2 (exported), sees 1 of 4 CPUs")

    def test_replaced_values_are_not(self, machine):
        line = said(machine(), {"TF_NUM_INTRAOP_THREADS": "0", "OMP_NUM_THREADS": "4"}, cpus="1", override_env="1")
        assert line.endswith(": intra-op 1, inter-op 2, OMP 1, sees 1 of 4 CPUs")


class TestArgv:
    """What the kernel gets as the command, nothing added to or taken from the arguments."""

    ARGUMENTS = ("--help", "", "two words", "--")

    def test_script(self):
        assert Command("script", "train.py", self.ARGUMENTS).argv() == [sys.executable, "train.py", *self.ARGUMENTS]

    def test_module(self):
        expected = [sys.executable, "-m", "package.module", *self.ARGUMENTS]
        assert Command("module", "package.module", self.ARGUMENTS).argv() == expected

    def test_program(self):
        assert Command("program", "ls", self.ARGUMENTS).argv() == ["ls", *self.ARGUMENTS]

    def test_standard_input(self):
        assert Command("script", "-", ()).argv() == [sys.executable, "-"]


class Replaced(BaseException):
    """Stands for the moment at which the kernel puts the program in the place of this process."""


@pytest.fixture
def executed(monkeypatch):
    """What was given to exec, which ends in Replaced instead of a new program."""
    calls = []

    def record(path, argv, environ):
        calls.append((path, argv, environ))
        raise Replaced

    monkeypatch.setattr(os, "execve", record)
    monkeypatch.setattr(os, "execvpe", record)
    return calls


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "script.py"
    path.write_text("")
    return str(path)


class TestRun:
    """`run` ends in an exec, of the command as it is, with the caller's environment and the values."""

    def test_the_exec(self, executed, script, monkeypatch):
        monkeypatch.setenv("SOME_VARIABLE", "kept")
        monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
        with pytest.raises(Replaced):
            run(Command("script", script, ["-x"]), parse_options({"cpus": "1"}, {}))
        ((path, argv, environ),) = executed
        assert (path, argv) == (sys.executable, [sys.executable, script, "-x"])
        assert (environ["SOME_VARIABLE"], environ["OMP_NUM_THREADS"]) == ("kept", "1")
        assert "OMP_NUM_THREADS" not in os.environ

    def test_a_fault_starts_the_script_with_the_callers_environment(self, executed, script, monkeypatch, capsys):
        def fault(*arguments):
            raise ZeroDivisionError("mine")

        monkeypatch.setattr(launch, "decide", fault)
        with pytest.raises(Replaced):
            run(Command("script", script, []), Options())
        assert executed[0][2] == dict(os.environ)
        assert "ZeroDivisionError" in capsys.readouterr().err

    @pytest.mark.parametrize("options", [Options(strict=True), Options(dry_run=True)], ids=["strict", "dry run"])
    def test_a_fault_is_an_error_where_nothing_may_start(self, executed, script, monkeypatch, options):
        def fault(*arguments):
            raise ZeroDivisionError

        monkeypatch.setattr(launch, "decide", fault)
        with pytest.raises(ZeroDivisionError):
            run(Command("script", script, []), options)
        assert executed == []

    def test_another_program_gets_the_signals_that_python_had_changed(self, executed):
        before = signal.getsignal(signal.SIGPIPE)
        try:
            with pytest.raises(Replaced):
                run(Command("program", "ls", ["-l"]), Options(quiet=True))
            assert signal.getsignal(signal.SIGPIPE) == signal.SIG_DFL
        finally:
            signal.signal(signal.SIGPIPE, before)
        assert executed[0][:2] == ("ls", ["ls", "-l"])

    def test_without_standard_error(self, executed, script, monkeypatch):
        monkeypatch.setattr(sys, "stderr", None)
        with pytest.raises(Replaced):
            run(Command("script", script, []), Options(verbose=True))

    def test_an_interpreter_that_does_not_know_its_path(self, executed, script, monkeypatch):
        monkeypatch.setattr(sys, "executable", "")
        with pytest.raises(TflaunchError) as caught:
            run(Command("script", script, []), Options())
        assert (caught.value.exit_status, executed) == (125, [])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
class TestInit:
    """With --init `run` returns the status of the program, which runs as a child."""

    # A process of its own: it forks, takes orphans, and leaves signals blocked, as it ends soon afterwards.
    STARTER = (
        "import signal, sys",
        "from tflaunch.launch import Command, run",
        "from tflaunch.options import Options",
        "for code in sys.argv[1:]:",
        "    signal.pthread_sigmask(signal.SIG_SETMASK, [])",
        "    print(run(Command('program', '/bin/sh', ['-c', code]), Options(init=True, quiet=True)))",
    )

    def statuses(self, *codes: str) -> list[int]:
        """What `run` returns for each of these programs of the shell."""
        command = [sys.executable, "-c", "\n".join(self.STARTER), *codes]
        done = subprocess.run(
            command, stdout=subprocess.PIPE, text=True, check=True, start_new_session=True, timeout=60
        )
        return [int(line) for line in done.stdout.splitlines()]

    def test_every_status(self):
        assert self.statuses(*(f"exit {status}" for status in range(256))) == list(range(256))

    @pytest.mark.parametrize(
        ("code", "status"),
        [
            pytest.param("kill -TERM $$", 143, id="ended by a signal"),
            pytest.param("trap 'exit 5' USR1; kill -USR1 $PPID; sleep 20 >&- & wait; exit 1", 5, id="passed on"),
            pytest.param("trap 'exit 6' CONT; kill -CONT $PPID; sleep 20 >&- & wait; exit 1", 6, id="continued"),
            pytest.param("(while kill -CONT $$; do :; done) & kill -STOP $$; kill $!; exit 7", 7, id="stopped"),
        ],
    )
    def test_signals(self, code, status):
        assert self.statuses(code) == [status]

    def test_there_can_be_no_child(self, executed, script, monkeypatch, capsys):
        def fail():
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

        monkeypatch.setattr(os, "fork", fail)
        monkeypatch.setattr("tflaunch.init._become_subreaper", lambda: None)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
        with pytest.raises(Replaced):
            run(Command("script", script, []), Options(init=True))
        assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before
        assert "Resource temporarily unavailable" in capsys.readouterr().err
        with pytest.raises(TflaunchError, match="Resource temporarily unavailable"):
            run(Command("script", script, []), Options(init=True, strict=True))
        assert len(executed) == 1

    def test_a_system_without_fork(self, executed, script, monkeypatch):
        monkeypatch.delattr(os, "fork")
        with pytest.raises(UsageError, match="TFLAUNCH_INIT=1 cannot be used"):
            run(Command("script", script, []), parse_options({}, {"TFLAUNCH_INIT": "1"}))
        assert executed == []


class TestProcess1:
    """Who is the first process of a container hears what the kernel does to it."""

    @pytest.mark.parametrize("kind", ["script", "program"])
    def test_it_is_told_once(self, executed, script, monkeypatch, capsys, kind):
        monkeypatch.setattr(os, "getpid", lambda: 1)
        with pytest.raises(Replaced):
            run(Command(kind, script, []), Options(view="off"))
        (line,) = capsys.readouterr().err.splitlines()
        what = "program" if kind == "program" else "Python"
        assert line.endswith(f"; as process 1 a {what} without a SIGTERM handler ignores SIGTERM (hint: --init)")


class TestFailures:
    """What cannot be started is told before, with the status a shell would give."""

    @pytest.mark.parametrize(
        ("error", "kind"),
        [
            (FileNotFoundError(errno.ENOENT, "No such file or directory"), NotFoundError),
            (PermissionError(errno.EACCES, "Permission denied"), CannotRunError),
            (OSError(errno.ENOEXEC, "Exec format error"), CannotRunError),
            (OSError(errno.E2BIG, "Argument list too long"), CannotRunError),
            (ValueError("embedded null byte"), CannotRunError),
        ],
        ids=lambda value: getattr(value, "__name__", str(value)),
    )
    def test_an_exec_that_fails(self, monkeypatch, error, kind):
        def fail(*arguments):
            raise error

        monkeypatch.setattr(os, "execvpe", fail)
        monkeypatch.setattr(launch, "_restore_signals", lambda: None)
        with pytest.raises(kind) as caught:
            run(Command("program", "no-such\x1bprogram", []), Options(quiet=True))
        assert caught.value.what.isprintable()
        assert caught.value.hint

    def test_a_script_that_is_not_there(self, tmp_path):
        with pytest.raises(NotFoundError, match=r"missing\.py"):
            run(Command("script", str(tmp_path / "missing.py"), []), Options())

    def test_a_directory_without_a_main(self, tmp_path):
        with pytest.raises(CannotRunError, match=r"__main__\.py"):
            run(Command("script", str(tmp_path), []), Options())

    def test_a_script_that_cannot_be_read(self, script, monkeypatch):
        monkeypatch.setattr(os, "access", lambda path, mode: False)
        with pytest.raises(CannotRunError, match="read"):
            run(Command("script", script, []), Options())


class TestWindows:
    """Where exec would start a second process and let the shell go on, tflaunch waits for the program."""

    def test_it_ends_with_the_programs_status(self, script, monkeypatch):
        started = []

        def start(argv, *, env, check):
            started.append((argv, env["OMP_NUM_THREADS"]))
            return subprocess.CompletedProcess(argv, 7)

        monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
        monkeypatch.setattr(subprocess, "run", start)
        with monkeypatch.context() as windows:
            windows.setattr(os, "name", "nt")
            with pytest.raises(SystemExit) as ended:
                run(Command("script", script, ["-x"]), parse_options({"cpus": "1"}, {}))
        assert ended.value.code == 7
        assert started == [([sys.executable, script, "-x"], "1")]
