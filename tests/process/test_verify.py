"""`tflaunch verify SCRIPT` around the script: streams, signals, status, time. Its pools have tests of their own."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess

import pytest

# What TensorFlow's own log says of a pool of two threads and of another one; the scripts here write it themselves.
POOLS = "import os; os.write(2, b'I0000 00:00:1.5 1 process_util.cc:161] Session inter op parallelism threads: 2\\n')"


class TestStatus:
    """The script's own, unless that is 0 and its pools are not as planned, or were not seen."""

    @pytest.mark.parametrize("status", [0, 1, 3, 7, 255])
    def test_of_the_script(self, tflaunch, script, status):
        assert tflaunch("verify", script(POOLS, "import sys", f"sys.exit({status})")).returncode == status

    def test_nothing_seen(self, tflaunch, script):
        done = tflaunch("verify", script("print('no TensorFlow here')"))
        assert done.returncode in (1, 3)  # 3 where none is installed
        assert "All as planned" not in done.stderr
        assert "TensorFlow wrote of no pool" in " ".join(done.stderr.split())

    @pytest.mark.parametrize("variables", [{}, {"TFLAUNCH_DRY_RUN": "1"}], ids=["flag", "variable"])
    def test_dry_run_runs_nothing(self, tflaunch, script, variables):
        options = [] if variables else ["--dry-run"]
        done = tflaunch("verify", *options, script("print('ran')"), variables=variables)
        assert done.returncode == 0
        assert "export TF_NUM_INTRAOP_THREADS=" in done.stdout
        assert "ran" not in done.stdout

    def test_of_a_signal(self, tflaunch, script):
        name = script("import os, signal", "os.kill(os.getpid(), signal.SIGKILL)")
        assert tflaunch("verify", name).returncode == 128 + signal.SIGKILL

    def test_no_script(self, tflaunch):
        done = tflaunch("verify", "nothing.py")
        assert done.returncode == 127
        assert done.stderr.startswith("tflaunch: error: there is no script 'nothing.py'")

    @pytest.mark.parametrize("seconds", ["0", "-1", "nan", "soon"])
    def test_bad_timeout(self, tflaunch, script, seconds):
        done = tflaunch("verify", "--timeout", seconds, script("print(1)"))
        assert (done.returncode, done.stdout) == (2, "")
        assert [line.split(": ")[0] for line in done.stderr.splitlines()] == ["tflaunch", "hint"]


class TestStreams:
    """What the script reads and writes is as without tflaunch; the report comes behind it, on standard error."""

    def test_input_output_and_arguments(self, tflaunch, script):
        name = script("import sys", "print(sys.argv[1:], sys.stdin.read())", "print('problem', file=sys.stderr)")
        done = tflaunch("verify", name, "--json", "-v", input="text")
        assert done.stdout == "['--json', '-v'] text\n"
        assert done.stderr.startswith("problem\ntflaunch verify: ")

    def test_the_document_is_the_last_line(self, tflaunch, script):
        """Whatever the script's last line ends with."""
        done = tflaunch("verify", "--json", script("print('out', end='')"))
        first, *_, last = done.stdout.splitlines()
        assert first == "out"
        assert json.loads(last)["observed"]["intra_op"] == {"log": None, "threads": None}

    def test_quiet(self, tflaunch, script):
        assert tflaunch("verify", "-q", script("print('out')")).stderr == ""

    def test_descriptors_that_the_caller_left_open(self, tflaunch, program, tmp_path):
        (tmp_path / "script.py").write_text("print('read from a descriptor')")
        done = tflaunch(prefix=("sh", "-c", 'exec 7<script.py; exec "$@" verify -q /dev/fd/7', "sh", program))
        assert done.stdout == "read from a descriptor\n"

    def test_the_script_gets_the_plan(self, tflaunch, script):
        name = script("import os", "print(os.environ['TF_NUM_INTRAOP_THREADS'], os.environ['OMP_NUM_THREADS'])")
        assert tflaunch("verify", "--intra-op", "1", "--omp", "5", name).stdout == "1 5\n"

    def test_bytes(self, program, environment, script, tmp_path):
        name = script("import os", "os.write(2, bytes(range(256)) * 1000)")
        done = subprocess.run([program, "verify", name], cwd=tmp_path, env=environment, capture_output=True, timeout=60)
        assert done.stderr.startswith(bytes(range(256)) * 1000)

    def test_a_terminal_stays_one(self, program, environment, script, tmp_path):
        name = script("import os, sys", "print(sys.stderr.isatty(), os.get_terminal_size(2).columns)")
        ours, theirs = pty.openpty()
        subprocess.run(["stty", "columns", "93"], stdin=theirs, check=True)
        done = subprocess.run(
            [program, "verify", name], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=theirs, timeout=60
        )
        os.close(theirs)
        os.close(ours)
        assert done.stdout == b"True 93\n"

    def test_a_script_that_closes_its_standard_error(self, tflaunch, script):
        name = script("import os, time", "os.close(2)", "os.write(1, b'on')", "os._exit(4)")
        done = tflaunch("verify", name)
        assert (done.returncode, done.stdout) == (4, "on")

    @pytest.mark.parametrize("child", ["sleep 50", "while echo line >&2; do sleep 0.05; done"], ids=["quiet", "loud"])
    def test_a_process_that_is_left_behind_is_not_waited_for(self, tflaunch, script, child):
        command = ["sh", "-c", child]
        name = script(POOLS, "import subprocess", f"print(subprocess.Popen({command}, stdin=-3, stdout=-3).pid)")
        done = tflaunch("verify", "--timeout", "30", name)
        os.kill(int(done.stdout), signal.SIGKILL)
        assert done.returncode == 0

    def test_our_standard_error_is_closed(self, tflaunch, script, program):
        name = script("import sys", "print('problem', file=sys.stderr)", "print('out')")
        done = tflaunch(prefix=("sh", "-c", f"{program} verify --json {name} 2>&-"))
        assert done.stdout.startswith("out\n")


class TestSignals:
    """A signal for tflaunch is one for the script."""

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])
    def test_it_reaches_the_script(self, program, environment, script, tmp_path, number):
        name = script(
            "import signal, sys",
            f"signal.signal({int(number)}, lambda *_: sys.exit(5))",
            "print('ready', flush=True)",
            "signal.pause()",
        )
        command = [program, "verify", name]
        keywords = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        with subprocess.Popen(command, cwd=tmp_path, env=environment, **keywords) as process:
            assert process.stdout.readline() == b"ready\n"
            process.send_signal(number)
            assert process.wait(timeout=60) == 5


class TestTimeout:
    """A script that takes too long is ended, and counts as a difference."""

    @pytest.mark.parametrize(
        "stubborn", ["", "signal.signal(signal.SIGTERM, signal.SIG_IGN)"], ids=["at once", "by force"]
    )
    def test_it_ends(self, tflaunch, script, stubborn):
        name = script("import signal", stubborn, "signal.pause()")
        done = tflaunch("verify", "--json", "--timeout", "0.5", name)
        difference = json.loads(done.stdout)["differences"][-1]
        assert done.returncode == 1
        assert difference["kind"] == "timeout"
        assert "0.5 s" in difference["reason"]

    def test_a_script_that_is_in_time(self, tflaunch, script):
        assert tflaunch("verify", "--timeout", "50", script(POOLS)).returncode == 0
