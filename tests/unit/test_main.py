"""The command line in this process, up to the exec, which is recorded instead of done."""

from __future__ import annotations

import json
import os
import signal
import sys

import pytest

from tflaunch import launch
from tflaunch.main import main


@pytest.fixture
def run(monkeypatch, capsys):
    """Runs the command line and gives the exit status, what was printed, and the argv and environment of the exec."""

    class Result:
        status = argv = environ = None

    def record(path, argv, environ):
        Result.argv, Result.environ = argv, environ
        raise SystemExit  # the exec does not return

    def run(*arguments):
        for name in list(os.environ):
            if name.startswith("TFLAUNCH_") or name.endswith("_NUM_THREADS"):
                monkeypatch.delenv(name)
        monkeypatch.setattr(launch.os, "execve", record)
        monkeypatch.setattr(launch.os, "execvpe", record)
        monkeypatch.setattr(sys, "argv", ["tflaunch", *arguments])
        try:
            Result.status = main()
        except SystemExit:
            Result.status = None
        Result.out, Result.err = capsys.readouterr()
        return Result

    return run


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train.py"
    path.write_text("")
    return str(path)


class TestRun:
    """The program, its arguments and its environment."""

    @pytest.mark.parametrize("options", [(), ("-q", "--cpus", "1"), ("--",)], ids=["none", "some", "dashes"])
    def test_script(self, run, script, options):
        result = run("run", *options, script, "--cpus", "9", "--", "-h")
        assert result.argv == [sys.executable, script, "--cpus", "9", "--", "-h"]
        assert int(result.environ["TF_NUM_INTRAOP_THREADS"]) >= 1

    def test_module(self, run):
        assert run("run", "-m", "trainer.task", "-v").argv == [sys.executable, "-m", "trainer.task", "-v"]

    def test_program_gets_back_the_signals_that_python_ignores(self, run, monkeypatch):
        restored = {}
        monkeypatch.setattr(signal, "signal", restored.__setitem__)
        assert run("run", "--no-python", "serve", "-v").argv == ["serve", "-v"]
        assert restored == {signal.SIGPIPE: signal.SIG_DFL, signal.SIGXFSZ: signal.SIG_DFL}

    def test_explicit_values(self, run, script):
        result = run("run", "--intra-op", "1", "--inter-op", "3", "--omp", "7", script)
        names = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
        assert [result.environ[name] for name in names] == ["1", "3", "7", "7"]

    def test_one_line_or_more_or_none(self, run, script):
        assert run("run", script).err.count("\n") == 1
        assert run("run", "-v", script).err.count("\n") > 10
        assert run("run", "-q", script).err == ""

    def test_dry_run(self, run, script):
        result = run("run", "-q", "--dry-run", "--cpus", "1", script, "a b")
        assert (result.status, result.argv, result.err) == (0, None, "")
        assert "export TF_NUM_INTRAOP_THREADS=1  # set: " in result.out
        assert result.out.endswith(f"exec {sys.executable} {script} 'a b'\n")


class TestFault:
    """A fault of tflaunch's own does not keep the program from starting, unless it is asked to."""

    @pytest.fixture(autouse=True)
    def fault(self, monkeypatch):
        def read_machine(files):
            raise RuntimeError("not foreseen")

        monkeypatch.setattr("tflaunch.decision.read_machine", read_machine)

    def test_the_script_starts(self, run, script):
        result = run("run", script)
        assert result.argv == [sys.executable, script]
        assert "TF_NUM_INTRAOP_THREADS" not in result.environ
        assert result.err == "tflaunch: warning: no setting was made, a fault in tflaunch: RuntimeError: not foreseen\n"

    @pytest.mark.parametrize("option", ["--strict", "--dry-run"])
    def test_strict(self, run, script, option):
        result = run("run", option, script)
        assert (result.status, result.argv) == (125, None)
        what, hint = result.err.splitlines()
        assert what == "tflaunch: error: a fault in tflaunch: RuntimeError: not foreseen"
        assert hint.startswith("hint: ")


class TestOtherCommands:
    """What they print, in short; each has tests of its own."""

    def test_explain_json(self, run):
        assert json.loads(run("explain", "--json", "--cpus", "1").out)["plan"]["intra_op"]["value"] == 1

    def test_env(self, run):
        assert "export TF_NUM_INTRAOP_THREADS=1\n" in run("env", "--cpus", "1").out

    def test_env_warns(self, run, monkeypatch):
        monkeypatch.setenv("KMP_BLOCKTIME", "long")
        assert "KMP_BLOCKTIME" in run("env", "--cpus", "1").err
        assert run("env", "-q", "--cpus", "1").err == ""

    def test_version(self, run):
        assert run("--version").out.startswith("tflaunch 0.")

    def test_nothing_asked(self, run):
        result = run()
        assert result.status == 2
        assert "Usage" in result.out

    @pytest.mark.parametrize(
        "arguments",
        [
            ("frob",),
            ("run",),
            ("run", "--frob"),
            ("explain", "more"),
            ("env", "--format", "xml"),
            ("run", "-m", "--no-python", "x"),
        ],
    )
    def test_usage(self, run, arguments):
        result = run(*arguments)
        assert (result.status, result.out) == (2, "")
        assert [line.split(": ")[0] for line in result.err.splitlines()] == ["tflaunch", "hint"]
