from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys

import pytest

# What a process can see of itself that a launcher could have changed.
LOOK_AT_YOURSELF = """
import json, os, resource, sys
def fact(function, *arguments):
    try:
        return repr(function(*arguments))
    except (OSError, AttributeError) as error:
        return repr(error)
open_files = {}
for number in range(64):
    try:
        open_files[number] = f"{os.fstat(number).st_ino} {os.get_inheritable(number)}"
    except OSError:
        pass
# By the kernel's own word: what the C library says may be a view.
try:
    status = dict(line.split(":", 1) for line in open("/proc/self/status"))
except OSError:
    status = {}
facts = {
    "parent": os.getppid(),
    "group": os.getpgid(0),
    "session": os.getsid(0),
    "directory": os.getcwd(),
    "mask": os.umask(0),
    "niceness": os.nice(0),
    "limits": {
        name: resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith("RLIMIT_")
    },
    "open_files": open_files,
    "affinity": status.get("Cpus_allowed_list"),
    "scheduler": fact(os.sched_getscheduler, 0),
    "executable": sys.executable,
    "prefix": sys.prefix,
    "path": sys.path,
    "arguments": sys.argv,
    "flags": list(sys.flags),
    "name": __name__,
    "file": __file__,
    "encoding": sys.stdout.encoding,
}
with open("facts", "w") as file:
    json.dump(facts, file)
"""

PRINT_VARIABLES = (
    "import json, os",
    "print(json.dumps({name.decode('latin-1'): value.decode('latin-1') for name, value in os.environb.items()}))",
)

ONE_CPU = {
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "2",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "KMP_BLOCKTIME": "1",
    "PYTHON_CPU_COUNT": "1",
}


class TestProcess:
    """The script is the process that was started: no other one beside, above or below it."""

    @pytest.mark.parametrize("options", [(), ("--cpus", "1"), ("-q", "--")], ids=["no option", "options", "dashes"])
    def test_it_has_the_process_id_of_tflaunch(self, program, environment, script, tmp_path, options):
        name = script("import os", "print(os.getpid(), os.getppid())")
        command = [program, "run", *options, name]
        with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=tmp_path, env=environment, text=True) as process:
            output, _ = process.communicate(timeout=60)
        assert output.split() == [str(process.pid), str(os.getpid())]

    def test_another_program_too(self, program, environment, tmp_path):
        command = [program, "run", "-q", "--no-python", "sh", "-c", "echo $$ $PPID"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=tmp_path, env=environment, text=True) as process:
            output, _ = process.communicate(timeout=60)
        assert output.split() == [str(process.pid), str(os.getpid())]

    @pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts processes in /proc")
    @pytest.mark.parametrize("options", [(), ("--cpus", "1")], ids=["no option", "options"])
    def test_no_helper_was_started_on_the_way(self, tflaunch, script, options):
        """exec keeps the account of children that ended, so the script can see whether there was one."""
        name = script(
            "import os, pathlib, resource",
            "ended = resource.getrusage(resource.RUSAGE_CHILDREN)",
            "print(ended.ru_maxrss, ended.ru_minflt, ended.ru_utime + ended.ru_stime)",
            "mine = f'PPid:\\t{os.getpid()}\\n'",
            "print(sum(mine in path.read_text() for path in pathlib.Path('/proc').glob('[0-9]*/status')))",
            "print(len(os.listdir('/proc/self/task')))",
        )
        assert tflaunch("run", *options, name).stdout == "0 0 0.0\n0\n1\n"

    @pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks for what Linux shows")
    @pytest.mark.parametrize("options", [(), ("--cpus", "1")], ids=["no option", "option"])
    @pytest.mark.parametrize("as_module", [False, True], ids=["tflaunch", "python -m tflaunch"])
    def test_it_is_the_same_process_as_without_tflaunch(self, tflaunch, program, script, tmp_path, as_module, options):
        name = script(LOOK_AT_YOURSELF)
        launcher = (sys.executable, "-m", "tflaunch") if as_module else (program,)
        # A mask, a niceness, a limit and a directory that are not the usual ones.
        shell = ("sh", "-c", 'umask 027; ulimit -n 77; mkdir -p "a b"; cd "a b"; exec nice -n 3 "$@"', "sh")
        with open(tmp_path / "inherited", "w") as file:
            keywords = {"pass_fds": (file.fileno(),), "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            done = tflaunch(f"../{name}", "a", prefix=(*shell, sys.executable), **keywords)
            expected = json.loads((tmp_path / "a b" / "facts").read_text())
            assert done.returncode == 0
            done = tflaunch("run", *options, f"../{name}", "a", prefix=(*shell, *launcher), **keywords)
            seen = json.loads((tmp_path / "a b" / "facts").read_text())
            assert done.returncode == 0
        assert (expected["mask"], expected["niceness"], len(expected["open_files"])) == (0o027, 3, 4)
        # The installed program names its interpreter by a path of its own, python or python3.
        assert os.path.samefile(expected.pop("executable"), seen.pop("executable"))
        assert seen == expected

    def test_standard_input_is_the_scripts(self, tflaunch, script):
        name = script("import sys", "sys.stdout.write(sys.stdin.read().upper())")
        assert tflaunch("run", "-q", name, input="first\nsecond\n").stdout == "FIRST\nSECOND\n"

    def test_an_inherited_descriptor_can_be_written(self, tflaunch, script, tmp_path):
        name = script("import os, sys", "os.write(int(sys.argv[1]), b'through')")
        with open(tmp_path / "out", "w") as file:
            tflaunch("run", name, str(file.fileno()), pass_fds=(file.fileno(),))
        assert (tmp_path / "out").read_text() == "through"

    def test_a_terminal_stays_the_scripts(self, program, environment, script, tmp_path):
        import pty

        name = script("import os", "print(*[os.isatty(number) for number in range(3)])")
        master, slave = pty.openpty()
        try:
            subprocess.run(
                [program, "run", "-q", name],
                stdin=slave, stdout=slave, stderr=slave, cwd=tmp_path, env=environment, timeout=60, check=True,
            )  # fmt: skip
            assert os.read(master, 1000) == b"True True True\r\n"
        finally:
            os.close(master)
            os.close(slave)


class TestEnvironment:
    """The script gets the values of the plan, and every other variable as it was."""

    @pytest.mark.parametrize(
        ("options", "variables"),
        [
            pytest.param((), {"TFLAUNCH_CPUS": "1"}, id="variable"),
            pytest.param(("--cpus", "1"), {}, id="option"),
            pytest.param(("--cpus=1",), {"TFLAUNCH_CPUS": "0.5"}, id="option wins over variable"),
            pytest.param(("-q",), {"TFLAUNCH_CPUS": " 1000m "}, id="variable beside an option"),
            pytest.param((), {"TFLAUNCH_CPUS": "1", "TFLAUNCH_OMP": "", "TFLAUNCH_QUIET": ""}, id="empty variables"),
        ],
    )
    def test_values_of_one_cpu(self, tflaunch, script, options, variables):
        done = tflaunch("run", *options, script(*PRINT_VARIABLES), variables=variables)
        seen = json.loads(done.stdout)
        assert {name: seen.get(name) for name in ONE_CPU} == ONE_CPU

    @pytest.mark.parametrize(
        ("option", "value", "changed"),
        [
            ("inter_op", "1", {"TF_NUM_INTEROP_THREADS": "1"}),
            ("inter_op", "7", {"TF_NUM_INTEROP_THREADS": "7"}),
            ("omp", "5", {"OMP_NUM_THREADS": "5", "OPENBLAS_NUM_THREADS": "5", "MKL_NUM_THREADS": "5"}),
            ("intra_op", "1", {}),
        ],
    )
    def test_each_option_and_its_variable(self, tflaunch, script, option, value, changed):
        name = script(*PRINT_VARIABLES)
        flag = "--" + option.replace("_", "-")
        by_flag = json.loads(tflaunch("run", "--cpus", "1", flag, value, name).stdout)
        variables = {"TFLAUNCH_CPUS": "1", f"TFLAUNCH_{option.upper()}": value}
        by_variable = json.loads(tflaunch("run", name, variables=variables).stdout)
        expected = {**ONE_CPU, **changed}
        assert {name: by_flag[name] for name in expected} == expected
        assert {name: by_variable[name] for name in expected} == expected

    @pytest.mark.parametrize("options", [(), ("--intra-op", "1")], ids=["no option", "option"])
    def test_the_rest_is_unchanged_to_the_byte(self, tflaunch, script, environment, options):
        name = script(*PRINT_VARIABLES)
        before = {
            **{os.fsencode(key): os.fsencode(value) for key, value in environment.items()},
            b"EMPTY": b"",
            b"BYTES": b"\xff\x80 \xe9",
            b"NAME_\xfe": b"x",
            b"LINES": b"a\nb\n",
            b"EQUAL": b"a=b=c",
            b"lower case": b" blanks ",
            b"LD_LIBRARY_PATH": b"/nonexistent",
            b"PYTHONHASHSEED": b"7",
        }
        without = json.loads(tflaunch(name, prefix=(sys.executable,), env=before).stdout)
        seen = json.loads(tflaunch("run", *options, name, env=before).stdout)
        assert without["BYTES"] == "\xff\x80 \xe9"
        assert {name: seen.get(name) for name in without} == without
        added = {name for name in seen if name not in without}
        assert added >= set(ONE_CPU)
        assert all(name.endswith(("_THREADS", "_COUNT", "_BLOCKTIME", "_COMPUTED")) for name in added), added

    def test_inside_another_with_a_part_of_its_cpus(self, two_cpus, tflaunch, program, script):
        """A supervisor under tflaunch, as in an image's ENTRYPOINT, starts its workers by tflaunch too."""
        worker = ("--no-python", program, "run", "--cpus", "1", script(*PRINT_VARIABLES))
        done = tflaunch("run", *worker)
        assert {name: json.loads(done.stdout)[name] for name in ONE_CPU} == ONE_CPU
        assert "warning" not in done.stderr

    def test_inside_another_what_the_user_said_outside_stands(self, two_cpus, tflaunch, program, script):
        worker = ("--no-python", program, "run", "--cpus", "1", script(*PRINT_VARIABLES))
        done = tflaunch("run", "--inter-op", "7", *worker, variables={"OMP_NUM_THREADS": "5"})
        seen = json.loads(done.stdout)
        assert (seen["TF_NUM_INTEROP_THREADS"], seen["OMP_NUM_THREADS"]) == ("7", "5")
        assert seen["TF_NUM_INTRAOP_THREADS"] == "1"

    @pytest.mark.parametrize("locale", [{}, {"LANG": "C"}, {"LC_CTYPE": "POSIX"}, {"LC_ALL": "C"}])
    def test_another_program_gets_no_locale_that_the_caller_did_not_set(self, tflaunch, locale):
        """Python exports LC_CTYPE=C.UTF-8 for itself in a C locale (PEP 538)."""
        done = tflaunch("run", "-q", "--no-python", "/usr/bin/env", env={"TFLAUNCH_CPUS": "1", **locale})
        seen = dict(line.split("=", 1) for line in done.stdout.splitlines())
        assert {name: value for name, value in seen.items() if name.startswith(("LC_", "LANG"))} == locale

    def test_no_variable_at_all(self, tflaunch, script):
        done = tflaunch("run", script(*PRINT_VARIABLES), env={})
        assert (done.returncode, json.loads(done.stdout)["TF_NUM_INTEROP_THREADS"]) == (0, "2")

    @pytest.mark.parametrize("value", ["3", " 3 ", "03"])
    def test_a_valid_exported_value_is_kept_as_it_is_and_said(self, tflaunch, script, value):
        variables = {"TF_NUM_INTRAOP_THREADS": value, "TFLAUNCH_CPUS": "1"}
        done = tflaunch("run", script(*PRINT_VARIABLES), variables=variables)
        assert json.loads(done.stdout)["TF_NUM_INTRAOP_THREADS"] == value
        assert "exported" in done.stderr.splitlines()[0]

    def test_it_is_replaced_when_the_user_says_so(self, tflaunch, script):
        name = script(*PRINT_VARIABLES)
        variables = {"TF_NUM_INTRAOP_THREADS": "3", "OMP_PROC_BIND": "close", "TFLAUNCH_CPUS": "1"}
        by_flag = json.loads(tflaunch("run", "--override-env", name, variables=variables).stdout)
        by_variable = json.loads(tflaunch("run", name, variables={**variables, "TFLAUNCH_OVERRIDE_ENV": "yes"}).stdout)
        for seen in (by_flag, by_variable):
            assert seen["TF_NUM_INTRAOP_THREADS"] == "1"
            assert "OMP_PROC_BIND" not in seen

    @pytest.mark.parametrize(
        "value", ["", "0", "-1", "abc", "1.5", "1025", "9" * 30, "\udcff", "٣", "1e2", "2\x1b[31m"]
    )
    def test_an_invalid_exported_value_is_replaced_with_one_warning(self, tflaunch, script, value):
        variables = {"TF_NUM_INTRAOP_THREADS": value, "TFLAUNCH_CPUS": "1"}
        done = tflaunch("run", script(*PRINT_VARIABLES), variables=variables)
        assert json.loads(done.stdout)["TF_NUM_INTRAOP_THREADS"] == "1"
        warnings = [line for line in done.stderr.splitlines() if "warning" in line]
        assert len(warnings) == 1
        assert "TF_NUM_INTRAOP_THREADS" in warnings[0]
        assert "\x1b" not in done.stderr

    @pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="there is no affinity to set here")
    def test_one_allowed_cpu_gives_one_thread(self, tflaunch, script):
        cpu = max(os.sched_getaffinity(0))
        pinned = f"import os; os.sched_setaffinity(0, {{{cpu}}})"
        starter = f"{pinned}; import sys; os.execv(sys.argv[1], sys.argv[1:])"
        program = os.path.join(os.path.dirname(sys.executable), "tflaunch")
        done = tflaunch("run", script(*PRINT_VARIABLES), prefix=(sys.executable, "-c", starter, program))
        seen = json.loads(done.stdout)
        # A quota below one CPU would not change these either.
        assert {name: seen[name] for name in ONE_CPU} == ONE_CPU


HELLO = ("import sys", "print('out')", "print('err', file=sys.stderr)")


class TestOutput:
    """Standard output is the script's; on standard error there is one line, nothing with -q, more with -v."""

    def test_one_line_on_standard_error(self, tflaunch, script):
        done = tflaunch("run", "--cpus", "1", script(*HELLO))
        assert done.stdout == "out\n"
        line, error = done.stderr.splitlines()
        assert error == "err"
        assert line.startswith("tflaunch: ")
        for words in ("1 CPU", "--cpus 1", "intra-op 1", "inter-op 2", "OMP 1"):
            assert words in line

    def test_it_names_the_variable_that_gave_the_limit(self, tflaunch, script):
        done = tflaunch("run", script(*HELLO), variables={"TFLAUNCH_CPUS": "0.5"})
        line, _ = done.stderr.splitlines()
        assert "0.5 CPU" in line
        assert "TFLAUNCH_CPUS=0.5" in line

    @pytest.mark.parametrize(
        ("options", "variables"),
        [(("-q",), {}), (("--quiet",), {}), ((), {"TFLAUNCH_QUIET": "1"}), (("-q",), {"TFLAUNCH_VERBOSE": "1"})],
    )
    def test_quiet_says_nothing_not_even_warnings(self, tflaunch, script, options, variables):
        variables = {**variables, "OMP_NUM_THREADS": "no number"}
        done = tflaunch("run", *options, script(*HELLO), variables=variables)
        assert (done.stdout, done.stderr) == ("out\n", "err\n")

    @pytest.mark.parametrize(
        ("options", "variables"),
        [(("-v",), {}), (("--verbose",), {}), ((), {"TFLAUNCH_VERBOSE": "on"}), (("-v",), {"TFLAUNCH_QUIET": "1"})],
    )
    def test_verbose_gives_each_variable_with_its_value_and_reason(self, tflaunch, script, options, variables):
        variables = {"TFLAUNCH_CPUS": "1", **variables}
        done = tflaunch("run", *options, script(*HELLO), variables=variables)
        assert done.stdout == "out\n"
        lines = done.stderr.splitlines()
        for name, value in ONE_CPU.items():
            (line,) = (line for line in lines if f" {name}={value}:" in line)
            assert line.startswith("tflaunch: ")
            assert line.partition(f"{name}={value}:")[2].strip()

    def test_a_quiet_launcher_still_tells_errors(self, tflaunch):
        done = tflaunch("run", "-q", "missing.py")
        assert done.returncode == 127
        assert "missing.py" in done.stderr

    @pytest.mark.parametrize("options", ["", "-v", "--cpus 1"])
    @pytest.mark.parametrize("redirection", ["2>&-", "2>/dev/full", "<&-", "<&- 2>&-"])
    def test_a_standard_stream_that_cannot_be_used_is_no_hindrance(
        self, tflaunch, script, program, options, redirection
    ):
        if "full" in redirection and not os.path.exists("/dev/full"):
            pytest.skip("there is no /dev/full here")
        name = script("print('out')")
        command = f"{shlex.quote(program)} run {options} {name} {redirection}"
        done = tflaunch(prefix=("sh", "-c", command), variables={"OMP_NUM_THREADS": "no number"})
        assert (done.returncode, done.stdout) == (0, "out\n")

    @pytest.mark.parametrize("redirection", [">&-", "<&- >&- 2>&-"])
    def test_a_closed_standard_output_stays_closed(self, tflaunch, script, program, redirection):
        name = script("import os, sys", "open('seen', 'w').write(repr(sys.stdout))")
        done = tflaunch(prefix=("sh", "-c", f"{shlex.quote(program)} run {name} {redirection}; cat seen"))
        assert (done.returncode, done.stdout) == (0, "None")


class TestDryRun:
    """--dry-run prints the command and the changes, and runs nothing."""

    @pytest.mark.parametrize(
        ("options", "variables"),
        [(("--dry-run", "--cpus", "1"), {}), ((), {"TFLAUNCH_DRY_RUN": "1", "TFLAUNCH_CPUS": "1"})],
        ids=["option", "variable"],
    )
    def test_a_script(self, tflaunch, script, tmp_path, options, variables):
        name = script("open('ran', 'w')", name="it's a script.py")
        done = tflaunch("run", *options, name, "two words", "$(id)", "", variables=variables)
        assert done.returncode == 0, done.stderr
        assert not (tmp_path / "ran").exists()
        for variable, value in ONE_CPU.items():
            assert f"{variable}={value}" in done.stdout

    @pytest.mark.parametrize("form", ["script", "module", "program"])
    def test_a_shell_that_gets_the_text_does_what_run_would_have_done(self, tflaunch, script, form):
        lines = ("import json, os, sys", "json.dump([sys.argv[1:], dict(os.environ)], sys.stdout)")
        name = script(*lines, name="it's $a script.py")
        script(*lines, name="some_module.py")
        command = {
            "script": (name,),
            "module": ("-m", "some_module"),
            "program": ("--no-python", sys.executable, "-c", "; ".join(lines)),
        }[form]
        arguments = ["two words", "$(id)", "", "it's", "-q", "größe"]
        # Kept as it is, replaced, removed, and set.
        variables = {"OMP_NUM_THREADS": " 7 ", "TF_NUM_INTRAOP_THREADS": "no; id", "TFLAUNCH_INTER_OP": "3"}
        text = tflaunch("run", "--dry-run", *command, *arguments, variables=variables).stdout
        seen, by_shell = json.loads(tflaunch(prefix=("sh", "-c", text), variables=variables).stdout)
        expected, by_run = json.loads(tflaunch("run", *command, *arguments, variables=variables).stdout)
        assert seen == expected == arguments
        for shell_variable in ("_", "PWD", "OLDPWD", "SHLVL"):
            by_shell.pop(shell_variable, None), by_run.pop(shell_variable, None)
        assert by_shell == by_run
        assert (by_run["OMP_NUM_THREADS"], by_run["TF_NUM_INTEROP_THREADS"]) == (" 7 ", "3")

    def test_another_program(self, tflaunch, tmp_path):
        done = tflaunch("run", "--dry-run", "--no-python", "touch", "ran")
        assert (done.returncode, (tmp_path / "ran").exists()) == (0, False)
        assert "touch ran" in done.stdout

    def test_kept_replaced_and_removed_variables(self, tflaunch, script):
        variables = {"OMP_NUM_THREADS": "7", "TF_NUM_INTRAOP_THREADS": "no", "KMP_AFFINITY": "compact"}
        name = script("")
        kept = tflaunch("run", "--dry-run", "--cpus", "1", name, variables=variables).stdout
        assert "OMP_NUM_THREADS=7" in kept
        assert "TF_NUM_INTRAOP_THREADS=1" in kept
        replaced = tflaunch("run", "--dry-run", "--cpus", "1", "--override-env", name, variables=variables).stdout
        assert "OMP_NUM_THREADS=1" in replaced
        assert "KMP_AFFINITY" in replaced
        assert "KMP_AFFINITY=compact" not in replaced

    def test_a_missing_script_is_still_an_error(self, tflaunch):
        assert tflaunch("run", "--dry-run", "missing.py").returncode == 127


HEAVY = {
    "typer", "click", "rich", "typing", "dataclasses", "pathlib", "tensorflow", "numpy", "psutil", "cpuinfo",
    "json", "re", "fractions", "decimal", "enum", "inspect", "argparse", "subprocess", "shlex", "logging",
}  # fmt: skip


class TestImports:
    """The way to the exec without an option loads nothing that makes the start slow."""

    @staticmethod
    def imported(stderr: str) -> set[str]:
        lines = (line for line in stderr.splitlines() if line.startswith("import time:"))
        return {line.rpartition("|")[2].strip() for line in lines}

    @pytest.mark.parametrize(
        "variables",
        [
            {},
            {"TFLAUNCH_CPUS": "1.5", "TFLAUNCH_MODE": "latency", "TFLAUNCH_OVERRIDE_ENV": "1", "TFLAUNCH_VERBOSE": "1"},
            {"OMP_NUM_THREADS": "no number"},
        ],
        ids=["plain", "TFLAUNCH_ variables", "a warning"],
    )
    def test_the_common_path(self, tflaunch, script, variables):
        # -S: the files of site-packages may import anything before the first line of tflaunch.
        package = os.path.dirname(os.path.dirname(os.path.abspath(__import__("tflaunch").__file__)))
        code = f"import sys; sys.path.append({package!r}); from tflaunch.main import main; sys.exit(main())"
        prefix = (sys.executable, "-S", "-X", "importtime", "-c", code)
        done = tflaunch("run", script("print('out')"), prefix=prefix, variables=variables)
        assert (done.returncode, done.stdout) == (0, "out\n"), done.stderr
        imported = self.imported(done.stderr)
        assert {"tflaunch.main", "tflaunch.launch", "tflaunch.policy"} <= imported
        assert {name for name in imported if name.partition(".")[0] in HEAVY} == set()
        assert not any(name.startswith("tflaunch.cli") for name in imported)

    def test_no_number_crunching_package_with_options_either(self, tflaunch, script):
        code = "import sys; from tflaunch.main import main; sys.exit(main())"
        prefix = (sys.executable, "-X", "importtime", "-c", code)
        done = tflaunch("run", "--cpus", "1", script("print('out')"), prefix=prefix)
        assert (done.returncode, done.stdout) == (0, "out\n"), done.stderr
        imported = self.imported(done.stderr)
        assert "typer" in imported
        packages = {name.partition(".")[0] for name in imported}
        assert packages & {"tensorflow", "numpy", "psutil", "cpuinfo"} == set()
