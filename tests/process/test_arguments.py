from __future__ import annotations

import json
import os
import sys

import pytest

PRINT_ARGUMENTS = (
    "import json, os, sys",
    "print(json.dumps([os.fsencode(argument).hex() for argument in sys.argv]))",
)


def arguments_in(output: str) -> list[bytes]:
    return [bytes.fromhex(argument) for argument in json.loads(output)]


ARGUMENTS = [
    pytest.param([], id="none"),
    pytest.param([b"plain", b"two words", b"  ", b"\t"], id="blanks"),
    pytest.param([b"", b"a", b"", b""], id="empty strings"),
    pytest.param([b"it's", b'say "hi"', b"`id`", b"back\\slash"], id="quotes"),
    pytest.param([b"a;b", b"$(id)", b"$HOME", b"*", b"~", b"a|b", b"&", b">x", b"#"], id="shell syntax"),
    pytest.param([b"two\nlines", b"\n", b"\r"], id="newlines"),
    pytest.param([b"\xff\xfe", "größe".encode(), "größe".encode("latin-1")], id="bytes that are no UTF-8"),
    pytest.param([b"--cpus", b"1", b"-q", b"-v", b"--dry-run", b"-m", b"--no-python"], id="options of tflaunch"),
    pytest.param([b"--cpus=bad", b"--strict"], id="options of tflaunch with bad values"),
    pytest.param([b"--epochs", b"3", b"-x", b"--a=b"], id="unknown options"),
    pytest.param([b"--help"], id="help"),
    pytest.param([b"--version"], id="version"),
    pytest.param([b"-vq", b"-qv", b"-mx"], id="clusters"),
    pytest.param([b"--"], id="one double dash"),
    pytest.param([b"--", b"a", b"--", b"--"], id="double dashes"),
    pytest.param([b"a", b"--", b"-q"], id="double dash in the middle"),
    pytest.param([b"run", b"script.py", b"explain"], id="names of commands"),
    pytest.param([b"-", b"@file", b"%d", b"{}"], id="other marks"),
    pytest.param([b"x" * 100_000], id="long"),
    pytest.param([b"%d" % number for number in range(3000)], id="many"),
]


@pytest.mark.parametrize("arguments", ARGUMENTS)
class TestArguments:
    """What stands after the script's name is the script's, byte for byte."""

    def test_without_options(self, tflaunch, script, arguments):
        done = tflaunch("run", script(*PRINT_ARGUMENTS), *arguments)
        assert done.returncode == 0, done.stderr
        assert arguments_in(done.stdout) == [b"script.py", *arguments]

    def test_with_options(self, tflaunch, script, arguments):
        done = tflaunch("run", "--cpus", "1", "-q", script(*PRINT_ARGUMENTS), *arguments)
        assert done.returncode == 0, done.stderr
        assert arguments_in(done.stdout) == [b"script.py", *arguments]
        assert done.stderr == ""


EVERYTHING = [argument for parameter in ARGUMENTS for argument in parameter.values[0]]


@pytest.mark.parametrize("first", [b"--help", b"--", b"-q", b"plain"])
class TestArgumentsOfOtherForms:
    """It is the same after a double dash, for modules and for other programs."""

    def test_after_a_double_dash(self, tflaunch, script, first):
        done = tflaunch("run", "--", script(*PRINT_ARGUMENTS), first, *EVERYTHING)
        assert done.returncode == 0, done.stderr
        assert arguments_in(done.stdout) == [b"script.py", first, *EVERYTHING]

    def test_of_a_module(self, tflaunch, script, tmp_path, first):
        script(*PRINT_ARGUMENTS, name="some_module.py")
        done = tflaunch("run", "-m", "some_module", first, *EVERYTHING)
        assert done.returncode == 0, done.stderr
        # Python puts the module's full path where a script has its name.
        assert arguments_in(done.stdout) == [os.fsencode(tmp_path / "some_module.py"), first, *EVERYTHING]

    def test_of_another_program(self, tflaunch, first):
        done = tflaunch("run", "--no-python", sys.executable, "-c", "\n".join(PRINT_ARGUMENTS), first, *EVERYTHING)
        assert done.returncode == 0, done.stderr
        assert arguments_in(done.stdout) == [b"-c", first, *EVERYTHING]


class TestScriptName:
    """The script is the first argument that is no option, or what follows the first double dash."""

    @pytest.mark.parametrize(
        "name",
        [
            "--cpus",
            "-q",
            "--help",
            "-m",
            "-x.py",
            "two words.py",
            "it's.py",
            "$(id).py",
            "größe.py",
            "run",
            "new\nline",
        ],
    )
    def test_any_name_after_a_double_dash(self, tflaunch, script, name):
        script(*PRINT_ARGUMENTS, name=name)
        done = tflaunch("run", "--", f"./{name}", "a")
        assert (done.returncode, arguments_in(done.stdout)) == (0, [os.fsencode(f"./{name}"), b"a"]), done.stderr

    def test_a_name_like_an_option_starts_that_script(self, tflaunch, script):
        """Python itself would take a bare "-q" or "--help" for its own."""
        script(*PRINT_ARGUMENTS, name="--help")
        done = tflaunch("run", "--", "--help", "a")
        assert done.returncode == 0, done.stderr
        assert arguments_in(done.stdout)[1:] == [b"a"]

    def test_bytes_that_are_no_utf8(self, tflaunch, tmp_path):
        name = b"\xff\xfe.py"
        with open(os.path.join(os.fsencode(tmp_path), name), "w") as file:
            file.write("\n".join(PRINT_ARGUMENTS))
        done = tflaunch("run", name)
        assert (done.returncode, arguments_in(done.stdout)) == (0, [name]), done.stderr

    def test_a_program_named_like_an_option(self, tflaunch, tmp_path, environment):
        (tmp_path / "-q").write_text('#!/bin/sh\nprintf "<%s>" "$@"\n')
        (tmp_path / "-q").chmod(0o755)
        path = f"{tmp_path}:{environment['PATH']}"
        done = tflaunch("run", "--no-python", "--", "-q", "--", "-v", variables={"PATH": path})
        assert (done.returncode, done.stdout) == (0, "<--><-v>"), done.stderr

    def test_the_second_double_dash_is_a_name(self, tflaunch, script):
        done = tflaunch("run", "--", "--", script(*PRINT_ARGUMENTS))
        assert done.returncode == 127

    def test_a_dash_reads_the_script_from_standard_input(self, tflaunch):
        done = tflaunch("run", "-q", "--", "-", "a", "-q", input="\n".join(PRINT_ARGUMENTS))
        assert (done.returncode, arguments_in(done.stdout)) == (0, [b"-", b"a", b"-q"]), done.stderr

    def test_a_dash_needs_no_double_dash(self, tflaunch):
        done = tflaunch("run", "-", "--cpus", input="\n".join(PRINT_ARGUMENTS))
        assert (done.returncode, arguments_in(done.stdout)) == (0, [b"-", b"--cpus"]), done.stderr

    def test_a_directory_with_a_main(self, tflaunch, script, tmp_path):
        (tmp_path / "app").mkdir()
        script(*PRINT_ARGUMENTS, name="app/__main__.py")
        done = tflaunch("run", "app", "--help")
        assert (done.returncode, arguments_in(done.stdout)) == (0, [b"app", b"--help"]), done.stderr

    def test_a_package(self, tflaunch, script, tmp_path):
        (tmp_path / "package").mkdir()
        script("", name="package/__init__.py")
        script(*PRINT_ARGUMENTS, name="package/__main__.py")
        done = tflaunch("run", "-m", "package", "--cpus")
        assert (done.returncode, arguments_in(done.stdout)[1:]) == (0, [b"--cpus"]), done.stderr
