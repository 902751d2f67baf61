from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

# Linux capabilities that let root read and enter everything: linux/capability.h, prctl(2).
DAC_CAPABILITIES = (1, 2)
PR_CAPBSET_DROP = 24

DROP_CAPABILITIES = f"""
import ctypes, os, sys
prctl = ctypes.CDLL(None, use_errno=True).prctl
for capability in {DAC_CAPABILITIES}:
    if os.geteuid() == 0 and prctl({PR_CAPBSET_DROP}, capability, 0, 0, 0):
        sys.exit(f"cannot drop a capability: {{os.strerror(ctypes.get_errno())}}")
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.fixture
def without_privileges(program) -> tuple[str, ...]:
    """A prefix under which permissions hold for root too."""
    return (sys.executable, "-c", DROP_CAPABILITIES, program)


class TestExitStatusOfTheScript:
    """The script's own exit status comes through, whatever it is."""

    def test_all_of_them(self, program, environment, script, tmp_path):
        name = script("import os, sys", "os._exit(int(sys.argv[1]))")
        seen = []
        for first in range(0, 256, 8):
            started = [
                subprocess.Popen(
                    [program, "run", name, str(status)], cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL
                )
                for status in range(first, first + 8)
            ]
            seen += [process.wait(timeout=60) for process in started]
        assert seen == list(range(256))

    @pytest.mark.parametrize("status", [0, 1, 2, 125, 126, 127, 255])
    @pytest.mark.parametrize("form", ["options", "module", "program"])
    def test_in_other_forms(self, tflaunch, script, form, status):
        name = script("import sys", "sys.exit(int(sys.argv[1]))", name="some_module.py")
        command = {
            "options": ("--cpus", "1", name),
            "module": ("-m", "some_module"),
            "program": ("--no-python", "sh", "-c", 'exit "$1"', "sh"),
        }[form]
        assert tflaunch("run", *command, str(status)).returncode == status

    def test_an_exception_of_the_script_is_the_scripts(self, tflaunch, script):
        done = tflaunch("run", "-q", script("raise SystemError('mine')"))
        assert done.returncode == 1
        assert done.stderr.startswith("Traceback")
        assert done.stderr.endswith("SystemError: mine\n")

    @pytest.mark.parametrize(
        "number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGABRT, signal.SIGSEGV, signal.SIGHUP]
    )
    @pytest.mark.parametrize("options", [(), ("--cpus", "1")], ids=["no option", "option"])
    def test_a_death_by_signal_is_seen_as_that_signal(self, tflaunch, script, options, number):
        name = script(
            "import os, resource, signal, sys",
            "resource.setrlimit(resource.RLIMIT_CORE, (0, 0))",
            "number = int(sys.argv[1])",
            "if number != signal.SIGKILL:",
            "    signal.signal(number, signal.SIG_DFL)",
            "os.kill(os.getpid(), number)",
        )
        # A negative returncode is what waitpid() says with WIFSIGNALED; 128 + number would be an ordinary exit.
        assert tflaunch("run", *options, name, str(int(number))).returncode == -number


def expect_error(done: subprocess.CompletedProcess[str], status: int, words: str) -> None:
    assert done.returncode == status, done.stderr
    assert done.stdout == ""
    # A program that is not found is known only when it is tried, after the line that says what it would have got.
    lines = [line for line in done.stderr.splitlines() if not line.startswith("tflaunch: 1 CPU")]
    assert len(lines) == 2, done.stderr
    assert lines[0].startswith("tflaunch: error: ")
    assert words in lines[0]
    assert lines[1].startswith("hint: ")
    assert len(lines[1]) > len("hint: ")


@pytest.mark.parametrize("options", [(), ("--cpus", "1")], ids=["no option", "option"])
class TestNotFound:
    """127: there is no such program."""

    @pytest.mark.parametrize("name", ["missing.py", "missing/train.py", "", "file/below.py", "dangling", "x\ny\x1b[2J"])
    def test_a_script(self, tflaunch, tmp_path, options, name):
        (tmp_path / "file").write_text("")
        (tmp_path / "dangling").symlink_to("nowhere")
        done = tflaunch("run", *options, name, variables={"TFLAUNCH_CPUS": "1"})
        expect_error(done, 127, name if name.isprintable() else "there is no script")
        assert "\x1b" not in done.stderr

    def test_a_name_too_long_for_a_file(self, tflaunch, options):
        expect_error(tflaunch("run", *options, "x" * 300), 127, "xxx")


class TestProgramNotFound:
    @pytest.mark.parametrize("name", ["no-such-program", "./no-such-program", "/no/such/program"])
    def test_a_program(self, tflaunch, name):
        expect_error(tflaunch("run", "--cpus", "1", "--no-python", name), 127, name)

    def test_a_module_is_pythons_to_find(self, tflaunch):
        done = tflaunch("run", "-q", "-m", "no_such_module")
        assert done.returncode == 1
        assert "No module named no_such_module" in done.stderr


class TestCannotBeRun:
    """126: it is there, and cannot be run."""

    def test_an_unreadable_script(self, tflaunch, script, tmp_path, without_privileges):
        name = script("print('ran')")
        (tmp_path / name).chmod(0)
        expect_error(tflaunch("run", name, prefix=without_privileges), 126, name)
        expect_error(tflaunch("run", "--cpus", "1", name, prefix=without_privileges), 126, name)

    def test_a_directory_without_a_main(self, tflaunch, tmp_path):
        (tmp_path / "app").mkdir()
        expect_error(tflaunch("run", "app"), 126, "app")

    def test_a_program_that_is_not_executable(self, tflaunch, tmp_path):
        (tmp_path / "tool").write_text("#!/bin/sh\n")
        expect_error(tflaunch("run", "--cpus", "1", "--no-python", "./tool"), 126, "./tool")

    def test_a_directory_as_a_program(self, tflaunch, tmp_path):
        (tmp_path / "tool").mkdir()
        expect_error(tflaunch("run", "--cpus", "1", "--no-python", "./tool"), 126, "./tool")

    @pytest.mark.parametrize("content", [b"neither a program nor a script\n", b"\x7fELF\x02\x01\x01", b""])
    def test_a_file_of_no_known_format(self, tflaunch, tmp_path, content):
        (tmp_path / "tool").write_bytes(content)
        (tmp_path / "tool").chmod(0o755)
        expect_error(tflaunch("run", "--cpus", "1", "--no-python", "./tool"), 126, "./tool")

    @pytest.mark.parametrize("found_by", ["path", "PATH"])
    def test_a_missing_interpreter_in_the_first_line(self, tflaunch, tmp_path, environment, found_by):
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin" / "tool").write_text("#!/no/such/interpreter\n")
        (tmp_path / "bin" / "tool").chmod(0o755)
        name, path = ("bin/tool", "") if found_by == "path" else ("tool", f"{tmp_path / 'bin'}:")
        variables = {"PATH": path + environment["PATH"]}
        done = tflaunch("run", "--cpus", "1", "--no-python", name, variables=variables)
        expect_error(done, 126, name)

    def test_arguments_that_are_too_long_for_the_kernel(self, tflaunch, script):
        """At most 128 KiB an argument on Linux: execve(2). The start of tflaunch itself passes just below that."""
        name = script("print('ran')")
        preparation = f"sys.argv[1:] = ['run', {name!r}, 'x' * 10_000_000]"
        code = f"import sys; {preparation}; from tflaunch.main import main; sys.exit(main())"
        done = tflaunch(prefix=(sys.executable, "-c", code), variables={"TFLAUNCH_CPUS": "1"})
        expect_error(done, 126, "too long")


class TestExecutablePrograms:
    """--no-python finds programs as a shell does."""

    def test_in_the_path(self, tflaunch, tmp_path, environment):
        (tmp_path / "bin").mkdir()
        tool = tmp_path / "bin" / "some-tool"
        tool.write_text('#!/bin/sh\necho "$0" "$TF_NUM_INTRAOP_THREADS"\n')
        tool.chmod(0o755)
        variables = {"PATH": f"/no/such/directory:{tmp_path / 'bin'}:{environment['PATH']}"}
        done = tflaunch("run", "--cpus", "1", "--no-python", "some-tool", variables=variables)
        assert (done.returncode, done.stdout) == (0, f"{tool} 1\n")

    def test_by_a_relative_path(self, tflaunch, tmp_path):
        tool = tmp_path / "tool"
        tool.write_text("#!/bin/sh\necho ran\n")
        tool.chmod(0o755)
        assert tflaunch("run", "--no-python", "./tool").stdout == "ran\n"
        assert Path(tool).exists()
        assert os.access(tool, os.X_OK)
