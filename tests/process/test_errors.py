from __future__ import annotations

import os
import shlex
import subprocess

import pytest


def expect_error(done: subprocess.CompletedProcess[str], status: int, *words: str) -> None:
    """Two lines on standard error, what and what to do, and nothing else anywhere."""
    assert done.returncode == status, done.stderr
    assert done.stdout == ""
    assert done.stderr.endswith("\n")
    # Split at line feeds only, as a terminal does; other control characters must not come through at all.
    lines = done.stderr[:-1].split("\n")
    assert len(lines) == 2, done.stderr
    assert all(line.isprintable() for line in lines)
    assert lines[0].startswith("tflaunch: error: ")
    assert lines[1].startswith("hint: ")
    assert len(lines[1]) > len("hint: ")
    for word in words:
        assert word in lines[0]


NO_CPUS = [
    "0", "0.0", "-1", "-0.5", "abc", "1.5x", "1,5", "nan", "inf", "0x2", "1_000", "٣", "1 2", "m", ".", "1.2.3",
    "1mm", "9" * 30, "--", "-q", "\x1b[31m2", "\udcff",
]  # fmt: skip
NO_THREADS = ["0", "-1", "1.5", "abc", "1025", "1500m", "0x2", "1_0", "٣", "1 2", "9" * 5000, "\udcff", "4,2"]
NO_WORD = ["fast", "throughput,latency", "none ceil", "\x1b[2J", "\udcff"]

BAD_VALUES = [
    *(("cpus", value) for value in NO_CPUS),
    *(("intra_op", value) for value in NO_THREADS),
    ("inter_op", "0"),
    ("inter_op", "-1"),
    ("inter_op", "two"),
    ("omp", "0"),
    ("omp", "4,3,2"),
    *(("mode", value) for value in NO_WORD),
    *(("rounding", value) for value in [*NO_WORD, "up"]),
    ("bind", "sockets"),
]
BAD_SWITCHES = [
    ("override_env", "2"),
    ("bind_anyway", "2"),
    ("init", "maybe"),
    ("strict", "maybe"),
    ("dry_run", "-"),
    ("verbose", "y e s"),
    ("quiet", "\udcff"),
]


def spoken(value: str) -> str:
    """What of the value a message must repeat: the beginning of a plain one; others are escaped in some way."""
    return value[:50] if value.isprintable() else ""


class TestBadValues:
    """A value that cannot be used is a usage error that names where it was said."""

    @pytest.mark.parametrize(
        ("option", "value"), [*BAD_VALUES, ("cpus", ""), ("omp", ""), ("mode", "")], ids=lambda text: ascii(text[:20])
    )
    def test_of_an_option(self, tflaunch, script, option, value):
        flag = "--" + option.replace("_", "-")
        done = tflaunch("run", f"{flag}={value}", script("print('ran')"))
        expect_error(done, 2, flag, spoken(value))

    @pytest.mark.parametrize(("option", "value"), [*BAD_VALUES, *BAD_SWITCHES], ids=lambda text: ascii(text[:20]))
    def test_of_a_variable(self, tflaunch, script, option, value):
        name = f"TFLAUNCH_{option.upper()}"
        done = tflaunch("run", script("print('ran')"), variables={name: value})
        expect_error(done, 2, name, spoken(value))

    @pytest.mark.parametrize("command", [("explain", "--json"), ("env",), ("run", "-q", "script.py")])
    @pytest.mark.parametrize("how", ["option", "variable"])
    def test_for_every_command(self, tflaunch, script, command, how):
        script("print('ran')")
        if how == "option":
            done = tflaunch(command[0], "--cpus", "none", *command[1:])
            expect_error(done, 2, "--cpus")
        else:
            expect_error(tflaunch(*command, variables={"TFLAUNCH_CPUS": "none"}), 2, "TFLAUNCH_CPUS")

    def test_a_good_option_does_not_hide_a_bad_variable_of_another(self, tflaunch, script):
        done = tflaunch("run", "--cpus", "1", script("print('ran')"), variables={"TFLAUNCH_MODE": "fast"})
        expect_error(done, 2, "TFLAUNCH_MODE")

    def test_a_good_option_wins_over_a_bad_variable(self, tflaunch, script):
        done = tflaunch("run", "--cpus", "1", script("print('ran')"), variables={"TFLAUNCH_CPUS": "none"})
        assert (done.returncode, done.stdout) == (0, "ran\n")

    @pytest.mark.parametrize("value", ["2", " 2 ", "2.0", "2000m", "0.5", "1500000u", "1500000000n", "64"])
    def test_the_values_that_can_be_used(self, tflaunch, script, value):
        done = tflaunch("run", script("print('ran')"), variables={"TFLAUNCH_CPUS": value})
        assert (done.returncode, done.stdout) == (0, "ran\n")


class TestUsage:
    """What cannot be understood is told in two lines, with status 2."""

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            pytest.param(("launch",), "launch", id="unknown command"),
            pytest.param(("train.py",), "train.py", id="script without run"),
            pytest.param(("",), "", id="empty command"),
            pytest.param(("two\nlines\x1b[2J",), "", id="control characters in a command"),
            pytest.param(("\udcff",), "", id="bytes in a command"),
            pytest.param(("--bogus",), "--bogus", id="unknown option of all commands"),
            pytest.param(("run",), "SCRIPT", id="run without script"),
            pytest.param(("run", "-q"), "SCRIPT", id="run with an option and no script"),
            pytest.param(("run", "--"), "SCRIPT", id="run with a double dash and no script"),
            pytest.param(("run", "-m"), "SCRIPT", id="-m without module"),
            pytest.param(("run", "--no-python"), "SCRIPT", id="--no-python without program"),
            pytest.param(("run", "--bogus", "script.py"), "--bogus", id="unknown option of run"),
            pytest.param(("run", "--\x1b[2J\n", "script.py"), "", id="control characters in an option"),
            pytest.param(("run", "-x", "script.py"), "-x", id="unknown short option"),
            pytest.param(("run", "-qx", "script.py"), "-x", id="unknown letter in a cluster"),
            pytest.param(("run", "--cp", "1", "script.py"), "--cp", id="shortened option"),
            pytest.param(("run", "--cpus"), "--cpus", id="missing value"),
            pytest.param(("run", "-q", "--intra-op"), "--intra-op", id="missing value after another option"),
            pytest.param(("run", "--quiet=1", "script.py"), "--quiet", id="value for a switch"),
            pytest.param(("run", "-m", "--no-python", "x"), "--no-python", id="-m with --no-python"),
            pytest.param(("run", "-q", "-v", "script.py"), "quiet", id="-q with -v"),
            pytest.param(("run", "-vq", "script.py"), "quiet", id="-vq"),
            pytest.param(("run", "--json", "script.py"), "--json", id="option of another command"),
            pytest.param(("explain", "script.py"), "script.py", id="argument of explain"),
            pytest.param(("explain", "--sysroot", "nowhere"), "nowhere", id="--sysroot missing"),
            pytest.param(("explain", "--sysroot", "script.py"), "script.py", id="--sysroot no directory"),
            pytest.param(("explain", "--sysroot", ""), "--sysroot", id="--sysroot empty"),
            pytest.param(("explain", "--sysroot", "\udcff\x1b[2J\n"), "--sysroot", id="--sysroot bytes"),
            pytest.param(("explain", "--sysroot"), "--sysroot", id="--sysroot without value"),
            pytest.param(("env", "--format", "yaml"), "yaml", id="--format unknown"),
            pytest.param(("env", "--format", ""), "--format", id="--format empty"),
            pytest.param(("env", "--format", "\x1b[2J\n\udcff"), "--format", id="--format bytes"),
            pytest.param(("env", "--format"), "--format", id="--format without value"),
            pytest.param(("env", "sh"), "sh", id="argument of env"),
        ],
    )
    def test_two_lines(self, tflaunch, script, arguments, words):
        script("print('ran')")
        expect_error(tflaunch(*arguments), 2, words)

    @pytest.mark.parametrize("redirection", ["2>&-", "2>/dev/full"])
    def test_the_status_is_the_same_where_nobody_can_be_told(self, tflaunch, program, redirection):
        command = f"{shlex.quote(program)} run --bogus {redirection}"
        done = tflaunch(prefix=("sh", "-c", command))
        assert (done.returncode, done.stdout, done.stderr) == (2, "", "")

    def test_colour_on_a_terminal_unless_the_user_wants_none(self, program, environment):
        import pty

        master, slave = pty.openpty()
        try:
            for variables, coloured in (({}, True), ({"NO_COLOR": "1"}, False)):
                subprocess.run([program, "launch"], stderr=slave, env=environment | variables, timeout=60, check=False)
                text = os.read(master, 10_000)
                assert (b"\x1b[" in text) is coloured
                assert b"error:" in text
        finally:
            os.close(master)
            os.close(slave)


FAULT = "import tflaunch.decision\ndef fault(files): raise KeyError('broken\\x1b[2J\\nin two')\n"


class TestFaultInTflaunch:
    """A mistake in tflaunch itself does not keep the script from starting."""

    @pytest.mark.parametrize("where", ["read_machine", "read_quota", "make_limit", "make_plan", "make_environment"])
    def test_the_script_starts_with_one_warning(self, inside, script, where):
        name = script("import os, sys", "print(os.environ.get('OMP_NUM_THREADS'), *sys.argv[1:])")
        preparation = FAULT.replace("(files)", "(*arguments)") + f"tflaunch.decision.{where} = fault"
        done = inside(preparation, "run", name, "a", variables={"OMP_NUM_THREADS": "5"})
        assert (done.returncode, done.stdout) == (0, "5 a\n")
        (line,) = done.stderr.splitlines()
        assert line.startswith("tflaunch: warning: ")
        assert "KeyError" in line
        assert line.isprintable()

    def test_with_options_too(self, inside, script):
        name = script("print('ran')")
        done = inside(FAULT + "tflaunch.decision.read_machine = fault", "run", "-q", "--cpus", "1", name)
        assert (done.returncode, done.stdout, done.stderr) == (0, "ran\n", "")

    @pytest.mark.parametrize("how", ["option", "variable"])
    def test_strict_makes_it_an_error(self, inside, script, how):
        options, variables = (("--strict",), {}) if how == "option" else ((), {"TFLAUNCH_STRICT": "1"})
        preparation = FAULT + "tflaunch.decision.read_machine = fault"
        done = inside(preparation, "run", *options, script("print('ran')"), variables=variables)
        expect_error(done, 125, "KeyError")

    @pytest.mark.parametrize(
        "command", [("explain",), ("explain", "--json"), ("env",), ("run", "--dry-run", "script.py")]
    )
    def test_other_commands_tell_it_without_a_traceback(self, inside, script, command):
        script("print('ran')")
        expect_error(inside(FAULT + "tflaunch.decision.read_machine = fault", *command), 125, "KeyError")

    def test_a_missing_script_is_told_first(self, inside):
        done = inside(FAULT + "tflaunch.decision.read_machine = fault", "run", "missing.py")
        expect_error(done, 127, "missing.py")


GARBAGE = bytes(range(256)) * 20


@pytest.fixture
def damaged_machine(tmp_path):
    """A recorded machine whose every file is garbage; the quota's file is a directory."""
    root = tmp_path / "damaged"
    for path in (
        "proc/self/cgroup",
        "proc/self/mountinfo",
        "proc/self/status",
        "proc/cpuinfo",
        "sys/devices/system/cpu/online",
        "sys/devices/system/cpu/cpu0/topology/core_cpus_list",
        "sys/devices/system/node/node0/cpulist",
    ):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(GARBAGE)
    return root


@pytest.fixture
def limited_machine(tmp_path):
    """A recorded machine of two CPUs whose cpu.max has the content given to it."""

    def make(cpu_max: str | None):
        root = tmp_path / "limited"
        files = {
            "proc/self/cgroup": "0::/pod\n",
            "proc/self/mountinfo": "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
            "proc/self/status": "Name:\tcat\nCpus_allowed_list:\t0-1\n",
            "sys/devices/system/cpu/online": "0-1\n",
            "sys/fs/cgroup/cgroup.controllers": "cpu memory\n",
        }
        for path, text in files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
        limit = root / "sys/fs/cgroup/pod/cpu.max"
        limit.parent.mkdir()
        if cpu_max is None:
            limit.mkdir()  # reading it fails with an error that is not "no such file"
        else:
            limit.write_text(cpu_max)
        return root

    return make


def recorded_machine(root) -> str:
    """A line of Python after which `run` finds the files of another machine."""
    return (
        f"import tflaunch.launch, tflaunch.files; tflaunch.launch.Files = lambda: tflaunch.files.Files({str(root)!r})"
    )


UNUSABLE = [
    pytest.param(text, id=ascii(text)) for text in (None, "lots", "-5 100000", "100000 0", "1 2 3", "\0\x1b[2J")
]


class TestUnusableKernelFiles:
    """A file of the kernel that cannot be used costs a warning; with --strict it is an error."""

    @pytest.mark.parametrize("cpu_max", UNUSABLE)
    def test_explain_warns(self, tflaunch, limited_machine, cpu_max):
        import json

        done = tflaunch("explain", "--json", "--sysroot", str(limited_machine(cpu_max)))
        assert done.returncode == 0, done.stderr
        document = json.loads(done.stdout)
        (warning,) = document["warnings"]
        assert "cpu.max" in warning["message"]
        assert warning["message"].isprintable()
        assert (document["limit"]["bound_by"], document["limit"]["cpus"]) == ("affinity", 2)

    @pytest.mark.parametrize("cpu_max", UNUSABLE)
    def test_strict_fails(self, tflaunch, limited_machine, cpu_max):
        done = tflaunch("explain", "--json", "--strict", "--sysroot", str(limited_machine(cpu_max)))
        expect_error(done, 125, "cpu.max")

    def test_a_quota_that_can_be_read_is_no_reason_for_a_warning(self, tflaunch, limited_machine):
        import json

        root = str(limited_machine("150000 100000"))
        document = json.loads(tflaunch("explain", "--json", "--strict", "--sysroot", root).stdout)
        assert (document["warnings"], document["limit"]["quota_cpus"]) == ([], 1.5)

    @pytest.mark.parametrize("form", [(), ("--json",)], ids=["text", "json"])
    def test_a_machine_of_garbage(self, tflaunch, damaged_machine, form):
        done = tflaunch("explain", *form, "--sysroot", str(damaged_machine))
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr
        assert "\x1b" not in done.stdout

    def test_an_empty_directory_as_a_machine(self, tflaunch, tmp_path):
        (tmp_path / "empty").mkdir()
        assert tflaunch("explain", "--json", "--sysroot", "empty").returncode == 0

    @pytest.mark.parametrize("options", [(), ("--intra-op", "1")], ids=["no option", "option"])
    def test_run_starts_the_script(self, inside, script, damaged_machine, options):
        preparation = recorded_machine(damaged_machine)
        done = inside(preparation, "run", *options, script("import os", "print(os.environ['TF_NUM_INTRAOP_THREADS'])"))
        assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr
        assert "warning" in done.stderr
        assert all(line.startswith("tflaunch: ") and line.isprintable() for line in done.stderr.splitlines())

    def test_run_with_strict_does_not(self, inside, script, limited_machine):
        root = str(limited_machine(None))
        preparation = (
            f"import tflaunch.launch, tflaunch.files\ntflaunch.launch.Files = lambda: tflaunch.files.Files({root!r})"
        )
        done = inside(preparation, "run", script("print('ran')"), variables={"TFLAUNCH_STRICT": "1"})
        expect_error(done, 125, "cpu.max", "TFLAUNCH_STRICT")

    @pytest.mark.parametrize("options", [(), ("--cpus", "1")], ids=["no option", "option"])
    def test_a_system_without_affinity(self, inside, script, options):
        done = inside("del os.sched_getaffinity", "run", *options, script("print('ran')"))
        assert (done.returncode, done.stdout) == (0, "ran\n"), done.stderr
        assert len(done.stderr.splitlines()) == 1

    REFUSED = "def refuse(pid): raise PermissionError(1, 'Operation not permitted')\nos.sched_getaffinity = refuse"

    def test_affinity_that_cannot_be_asked(self, inside, script):
        """A sandbox may forbid the system call."""
        done = inside(self.REFUSED, "run", script("print('ran')"))
        assert (done.returncode, done.stdout) == (0, "ran\n"), done.stderr
        assert "Traceback" not in done.stderr

    @pytest.mark.parametrize("command", [("explain", "--json"), ("env",), ("run", "--dry-run", "script.py")])
    def test_other_commands_do_not_blame_their_output_for_it(self, inside, script, command):
        script("print('ran')")
        done = inside(self.REFUSED, *command)
        assert "Traceback" not in done.stderr
        assert "output" not in done.stderr
        assert done.returncode == 0 or "Operation not permitted" in done.stderr
