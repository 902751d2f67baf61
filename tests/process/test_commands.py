from __future__ import annotations

import json
import os
import shlex
import sys

import pytest

ONE_CPU = {
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "2",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "KMP_BLOCKTIME": "1",
    "PYTHON_CPU_COUNT": "1",
}

MODULE = (sys.executable, "-m", "tflaunch")


class TestHelp:
    """Help goes to standard output with status 0."""

    @pytest.mark.parametrize("prefix", [(), MODULE], ids=["tflaunch", "python -m tflaunch"])
    def test_of_the_program_names_the_commands(self, tflaunch, prefix):
        done = tflaunch("--help", prefix=prefix)
        assert (done.returncode, done.stderr) == (0, "")
        assert "Usage: tflaunch" in done.stdout
        for command in ("run", "explain", "env"):
            assert f" {command} " in done.stdout

    def test_no_arguments_show_it_too(self, tflaunch):
        """The status is 2, as nothing was asked for."""
        done = tflaunch()
        assert done.returncode == 2
        assert "Usage: tflaunch" in done.stdout + done.stderr
        assert "Traceback" not in done.stderr

    @pytest.mark.parametrize("command", ["run", "explain", "env"])
    def test_of_a_command_names_each_option_and_its_variable(self, tflaunch, command):
        done = tflaunch(command, "--help", variables={"COLUMNS": "200"})
        assert (done.returncode, done.stderr) == (0, "")
        for name in ("cpus", "intra_op", "inter_op", "omp", "mode", "rounding", "override_env", "strict"):
            assert "--" + name.replace("_", "-") in done.stdout
            assert f"TFLAUNCH_{name.upper()}" in done.stdout

    def test_the_version(self, tflaunch):
        from importlib.metadata import version

        done = tflaunch("--version")
        assert done.returncode == 0
        assert done.stdout.startswith(f"tflaunch {version('tflaunch')} ")


class TestModule:
    """python -m tflaunch is the same program."""

    @pytest.mark.parametrize(
        "arguments",
        [
            ("--help",),
            ("env", "--cpus", "1"),
            ("explain", "--json"),
            ("run", "--cpus", "1", "script.py", "-q", "--"),
            ("run", "script.py"),
            ("run", "missing.py"),
            ("launch",),
            ("run", "--bogus"),
        ],
        ids=" ".join,
    )
    def test_same_output_and_status(self, tflaunch, script, arguments):
        script("import sys", "print(sys.argv)", "sys.exit(7)")
        one, other = tflaunch(*arguments), tflaunch(*arguments, prefix=MODULE)
        assert (other.returncode, other.stdout, other.stderr) == (one.returncode, one.stdout, one.stderr)


def lines_of(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines())


# One kept with blanks around it, one list, one invalid and replaced, one removed.
EXPORTED = {
    "TFLAUNCH_CPUS": "1",
    "TF_NUM_INTEROP_THREADS": " 4 ",
    "OMP_NUM_THREADS": "3,2",
    "MKL_NUM_THREADS": "$(touch ran); 'x\"",
    "KMP_AFFINITY": "granularity=fine,compact,1,0",
    "TFLAUNCH_OVERRIDE_ENV": "0",
}


class TestEnv:
    """`tflaunch env` prints the variables so that the program it is meant for reads these very values."""

    @pytest.mark.parametrize("options", [(), ("--format", "sh"), ("--format=sh",)])
    def test_a_shell_evaluates_it(self, tflaunch, program, options):
        command = f'values=$({shlex.join([program, "env", *options])}) && eval "$values" && printenv'
        done = tflaunch(prefix=("sh", "-c", command), variables={"TFLAUNCH_CPUS": "1"})
        assert (done.returncode, done.stderr) == (0, "")
        seen = lines_of(done.stdout)
        assert {name: seen.get(name) for name in ONE_CPU} == ONE_CPU

    def test_the_way_the_help_shows(self, tflaunch, program, environment):
        path = f"{os.path.dirname(program)}:{environment['PATH']}"
        command = 'eval "$(tflaunch env)"; printenv TF_NUM_INTRAOP_THREADS'
        done = tflaunch(prefix=("sh", "-c", command), variables={"PATH": path, "TFLAUNCH_CPUS": "0.5"})
        assert (done.returncode, done.stdout) == (0, "1\n")

    def test_exported_values_in_a_shell(self, tflaunch, program, tmp_path):
        command = f'eval "$({shlex.quote(program)} env)"; env -0'
        done = tflaunch(prefix=("sh", "-c", command), variables=EXPORTED)
        seen = dict(entry.split("=", 1) for entry in done.stdout.split("\0") if entry)
        assert seen["TF_NUM_INTEROP_THREADS"].strip() == "4"
        assert (seen["OMP_NUM_THREADS"], seen["MKL_NUM_THREADS"]) == ("3,2", "1")
        assert seen["KMP_AFFINITY"] == EXPORTED["KMP_AFFINITY"]
        assert not (tmp_path / "ran").exists()

    def test_a_shell_removes_what_is_to_be_removed(self, tflaunch, program):
        command = f'eval "$({shlex.quote(program)} env --override-env)"; printenv'
        done = tflaunch(prefix=("sh", "-c", command), variables=EXPORTED)
        seen = lines_of(done.stdout)
        assert "KMP_AFFINITY" not in seen
        assert {name: seen.get(name) for name in ONE_CPU} == ONE_CPU

    def test_dotenv(self, tflaunch):
        """Docker and Compose take what follows the first equals sign as it stands, quotes included."""
        done = tflaunch("env", "--format", "dotenv", variables={"TFLAUNCH_CPUS": "1"})
        seen = lines_of(done.stdout)
        assert {name: seen.get(name) for name in ONE_CPU} == ONE_CPU
        assert not any(mark in done.stdout for mark in "\"' #")

    def test_json(self, tflaunch):
        seen = json.loads(tflaunch("env", "--format", "json", variables={"TFLAUNCH_CPUS": "1"}).stdout)
        assert {name: seen.get(name) for name in ONE_CPU} == ONE_CPU
        assert all(isinstance(value, str) for value in seen.values())

    def test_docker(self, tflaunch, program):
        """As the help shows it: words split by a shell, without quotes around the substitution."""
        command = f"set -f; printf '%s\\n' $({shlex.quote(program)} env --format docker)"
        done = tflaunch(prefix=("sh", "-c", command), variables=EXPORTED | {"OMP_NUM_THREADS": " 3 , 2 "})
        words = done.stdout.splitlines()
        assert all(word.startswith("--env=") for word in words), words
        seen = lines_of("\n".join(word.removeprefix("--env=") for word in words))
        assert (seen["TF_NUM_INTEROP_THREADS"], seen["OMP_NUM_THREADS"]) == ("4", "3,2")
        assert (seen["TF_NUM_INTRAOP_THREADS"], seen["MKL_NUM_THREADS"]) == ("1", "1")

    def test_kubernetes(self, tflaunch):
        """Values are strings in double quotes: a bare 1 would be a number, which the API server refuses."""
        done = tflaunch("env", "--format", "kubernetes", variables={"TFLAUNCH_CPUS": "1"})
        first, *lines = done.stdout.splitlines()
        assert first == "env:"
        names, values = lines[::2], lines[1::2]
        seen = {}
        for name, value in zip(names, values, strict=True):
            assert name.startswith("  - name: ")
            assert value.startswith('    value: "')
            seen[name.removeprefix("  - name: ")] = json.loads(value.removeprefix("    value: "))
        assert {name: seen.get(name) for name in ONE_CPU} == ONE_CPU

    @pytest.mark.parametrize("form", ["sh", "dotenv", "json", "docker", "kubernetes"])
    def test_warnings_do_not_get_between_the_values(self, tflaunch, form):
        clean = tflaunch("env", "--format", form, variables={"TFLAUNCH_CPUS": "1"})
        warned = tflaunch("env", "--format", form, variables={"TFLAUNCH_CPUS": "1", "OMP_NUM_THREADS": "no number"})
        assert warned.stdout == clean.stdout
        assert clean.stderr == ""
        assert "OMP_NUM_THREADS" in warned.stderr

    def test_a_warning_that_nobody_can_read_is_no_failure(self, tflaunch, program):
        command = f"{shlex.quote(program)} env --format json 2>/dev/full"
        done = tflaunch(prefix=("sh", "-c", command), variables={"OMP_NUM_THREADS": "no number"})
        assert done.returncode == 0
        assert "OMP_NUM_THREADS" in json.loads(done.stdout)

    def test_run_gives_the_same_values(self, tflaunch, script):
        name = script("import json, os", "print(json.dumps(dict(os.environ)))")
        variables = {"TFLAUNCH_CPUS": "1", "OMP_NUM_THREADS": "7"}
        printed = json.loads(tflaunch("env", "--format", "json", variables=variables).stdout)
        seen = json.loads(tflaunch("run", name, variables=variables).stdout)
        assert {name: seen[name] for name in printed} == printed


class TestExplain:
    """`tflaunch explain` shows what run would do, on this machine."""

    def test_json_has_the_values_that_run_sets(self, tflaunch, script):
        name = script("import json, os", "print(json.dumps(dict(os.environ)))")
        variables = {"TFLAUNCH_CPUS": "1", "OMP_NUM_THREADS": "7", "KMP_AFFINITY": "disabled"}
        document = json.loads(tflaunch("explain", "--json", variables=variables).stdout)
        seen = json.loads(tflaunch("run", name, variables=variables).stdout)
        assert document["schema"] == 1
        assert {entry["name"]: entry["value"] for entry in document["environment"]}.items() <= seen.items()
        assert (document["limit"]["cpus"], document["limit"]["bound_by"]) == (1, "option")

    @pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="there is no affinity to compare with")
    def test_the_allowed_cpus_are_those_of_the_process(self, tflaunch):
        machine = json.loads(tflaunch("explain", "--json").stdout)["machine"]
        cpus = set()
        for part in machine["allowed_cpus"].split(","):
            low, _, high = part.partition("-")
            cpus |= set(range(int(low), int(high or low) + 1))
        assert cpus == os.sched_getaffinity(0)

    def test_text_has_no_colour_in_a_pipe(self, tflaunch):
        done = tflaunch("explain")
        assert done.returncode == 0
        assert "\x1b" not in done.stdout
        assert "TF_NUM_INTRAOP_THREADS" in done.stdout

    @pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
    def test_a_terminal_of_another_encoding_is_no_hindrance(self, tflaunch, encoding):
        done = tflaunch("explain", variables={"PYTHONIOENCODING": encoding, "TFLAUNCH_CPUS": "1"}, encoding="latin-1")
        assert done.returncode == 0, done.stderr


EVERY_OUTPUT = [("--help",), ("--version",), ("env",), ("explain",), ("explain", "--json"), ("run", "--dry-run", "-")]


@pytest.mark.parametrize("arguments", EVERY_OUTPUT, ids=" ".join)
class TestStandardOutputThatCannotBeUsed:
    """A reader that has gone, a full disk or a closed stream give no traceback."""

    def test_a_reader_that_has_gone(self, tflaunch, arguments):
        reader, writer = os.pipe()
        os.close(reader)
        try:
            done = tflaunch(*arguments, stdout=writer)
        finally:
            os.close(writer)
        assert done.returncode != 0
        assert [line for line in done.stderr.splitlines() if not line.startswith("tflaunch: ")] == []

    def test_a_full_disk_is_an_error_that_says_so(self, tflaunch, arguments):
        if not os.path.exists("/dev/full"):
            pytest.skip("there is no /dev/full here")
        with open("/dev/full", "wb") as full:
            done = tflaunch(*arguments, stdout=full)
        assert done.returncode == 125
        *_, error, hint = done.stderr.splitlines()
        assert error.startswith("tflaunch: error: ")
        assert "No space left on device" in error
        # It is no mistake of tflaunch's that anybody should report.
        assert "fault in tflaunch" not in error
        assert hint.startswith("hint: ")

    def test_a_closed_one(self, tflaunch, program, arguments):
        done = tflaunch(prefix=("sh", "-c", f"{shlex.join([program, *arguments])} >&-"))
        assert "Traceback" not in done.stderr


def test_head_of_explain(tflaunch, program):
    """The way a person meets it."""
    done = tflaunch(prefix=("sh", "-c", f"{shlex.quote(program)} explain --json | head -n 1"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "{\n", "")


def test_it_starts_in_a_directory_that_is_gone(tflaunch, program):
    command = f"mkdir gone && cd gone && rmdir ../gone && exec {shlex.quote(program)} run -q --no-python echo ran"
    done = tflaunch(prefix=("sh", "-c", command))
    assert (done.returncode, done.stdout) == (0, "ran\n"), done.stderr
