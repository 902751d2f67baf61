"""`run --bind cores`: the mask that the kernel shows of the program, its threads and its children."""

from __future__ import annotations

import errno
import json
import os
import platform
import shutil
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system binds no processes")

# The machine of the tests may itself have a quota and no cpuset, where binding is refused.
BIND = ("--bind", "cores", "--bind-anyway")

# The kernel's word (proc_pid_status(5)), which no library in the process can change.
SHOW_MASKS = """
import json, os, subprocess, sys, threading
def mask(text):
    (line,) = [line for line in text.splitlines() if line.startswith("Cpus_allowed_list:")]
    return line.split()[1]
def look(key):
    with open("/proc/thread-self/status") as file:
        masks[key] = mask(file.read())
masks = {}
look("main")
thread = threading.Thread(target=look, args=("thread",))
thread.start()
thread.join()
masks["child"] = mask(subprocess.run(["cat", "/proc/self/status"], capture_output=True, text=True).stdout)
child = os.fork()
if child == 0:
    look("fork")
    os._exit(0 if masks["fork"] == masks["main"] else 1)
masks["fork"] = masks["main"] if os.waitpid(child, 0)[1] == 0 else "another"
seen = {"masks": masks, "python": sorted(os.sched_getaffinity(0)), "variables": dict(os.environ)}
print(json.dumps(seen))
"""


def expand(cpulist: str) -> set[int]:
    cpus: set[int] = set()
    for part in cpulist.split(","):
        low, _, high = part.partition("-")
        cpus.update(range(int(low), int(high or low) + 1))
    return cpus


@pytest.fixture
def masks_of(tflaunch, script):
    """What the program sees of itself: the one mask of all its threads and children, and the rest."""

    def run(*options: str, **keywords: object):
        done = tflaunch("run", *options, script(SHOW_MASKS), **keywords)
        assert done.returncode == 0, done.stderr
        seen = json.loads(done.stdout)
        (mask,) = set(seen["masks"].values())
        return expand(mask), seen, done.stderr

    return run


class TestMask:
    """The program has as many CPUs as the limit, of those that were allowed."""

    def test_one_cpu(self, two_cpus, masks_of):
        mask, seen, stderr = masks_of("--cpus", "1", *BIND)
        assert len(mask) == 1
        assert mask <= os.sched_getaffinity(0)
        assert seen["python"] == sorted(mask)
        (line,) = stderr.splitlines()
        assert line.endswith(f", bound to {min(mask)}")

    def test_a_limit_below_one(self, two_cpus, masks_of):
        assert len(masks_of("--cpus", "0.5", *BIND)[0]) == 1

    def test_variables(self, two_cpus, masks_of):
        variables = {"TFLAUNCH_CPUS": "1", "TFLAUNCH_BIND": "cores", "TFLAUNCH_BIND_ANYWAY": "1"}
        mask, _, stderr = masks_of(variables=variables)
        assert len(mask) == 1
        assert "bound to" in stderr

    def test_no_view_is_needed(self, two_cpus, masks_of):
        _, seen, _ = masks_of("--cpus", "1", *BIND)
        assert not {name for name in seen["variables"] if name.startswith("TFLAUNCH_VIEW_")}
        assert "libtflaunch" not in seen["variables"].get("LD_PRELOAD", "")

    @pytest.mark.parametrize("options", [(), ("--cpus", "1"), ("--cpus", "1", "--bind", "none"), ("--bind-anyway",)])
    def test_not_asked_for(self, masks_of, options):
        mask, seen, stderr = masks_of(*options)
        assert mask == os.sched_getaffinity(0)
        assert "OMP_PROC_BIND" not in seen["variables"]
        assert "bound to" not in stderr
        assert "to bind" not in stderr

    def test_another_program(self, two_cpus, tflaunch):
        done = tflaunch("run", "--cpus", "1", *BIND, "--no-python", "grep", "Cpus_allowed_list", "/proc/self/status")
        assert len(expand(done.stdout.split()[1])) == 1

    def test_a_mask_of_its_own_is_never_left(self, masks_of):
        cpu = max(os.sched_getaffinity(0))
        pin = f"import os, sys; os.sched_setaffinity(0, {{{cpu}}}); os.execv(sys.argv[1], sys.argv[1:])"
        program = str(Path(sys.executable).with_name("tflaunch"))
        mask, _, stderr = masks_of("--bind", "cores", prefix=(sys.executable, "-c", pin, program))
        assert mask == {cpu}
        assert "nothing to bind" in stderr

    def test_all_cpus(self, masks_of):
        allowed = os.sched_getaffinity(0)
        mask, _, stderr = masks_of("--cpus", str(len(allowed)), *BIND, "-v")
        assert mask == allowed
        assert "tflaunch: nothing to bind: the plan uses all allowed CPUs" in stderr.splitlines()
        assert "warning" not in stderr

    def test_inside_another_tflaunch(self, two_cpus, tflaunch, program, script):
        """The view of the outer one shows the inner one a single CPU; the kernel's mask is what counts."""
        name = script(SHOW_MASKS)
        done = tflaunch("run", "--cpus", "1", "--no-python", program, "run", *BIND, name)
        (mask,) = set(json.loads(done.stdout)["masks"].values())
        assert len(expand(mask)) == 1


class TestOpenMP:
    """OpenMP's own binding ends, with the reason; libgomp leaves the mask as it is."""

    def test_variables(self, masks_of):
        exported = {
            "OMP_PROC_BIND": "close",
            "OMP_PLACES": "cores",
            "GOMP_CPU_AFFINITY": "0",
            "KMP_AFFINITY": "compact",
        }
        _, seen, stderr = masks_of("--cpus", "1", *BIND, "-v", variables=exported)
        values = {name: seen["variables"].get(name) for name in exported}
        assert values == {"OMP_PROC_BIND": "false", "OMP_PLACES": None, "GOMP_CPU_AFFINITY": None, "KMP_AFFINITY": None}
        for name, value in exported.items():
            (line,) = (line for line in stderr.splitlines() if f" {name}" in line)
            assert "--bind cores" in line
            assert f"'{value}'" in line
        assert "warning" not in stderr

    def test_a_real_runtime(self, two_cpus, tflaunch, script):
        """scikit-learn brings GNU's OpenMP, which binds the main thread when it is loaded."""
        name = script(
            "import sklearn.cluster",
            "print('libgomp' in open('/proc/self/maps').read())",
            "(line,) = [line for line in open('/proc/self/status') if line.startswith('Cpus_allowed_list')]",
            "print(line.split()[1])",
        )
        seen = {}
        for bind in ("none", "cores"):
            everything = ("--cpus", str(len(os.sched_getaffinity(0))), "--bind-anyway")
            done = tflaunch("run", *everything, "--bind", bind, name, variables={"OMP_PROC_BIND": "close"})
            assert done.returncode == 0, done.stderr
            is_loaded, mask = done.stdout.split()
            assert is_loaded == "True"
            seen[bind] = expand(mask)
        assert len(seen["none"]) == 1
        assert seen["cores"] == os.sched_getaffinity(0)


class TestRefused:
    """A kernel or a sandbox that refuses the call costs one warning, and the script starts as without --bind."""

    @pytest.fixture
    def sandbox(self, program):
        if platform.machine() != "x86_64":
            pytest.skip("the number of the call is that of x86-64")
        return (sys.executable, str(Path(__file__).with_name("test_sandbox.py")), str(errno.EPERM), program)

    def test_warning(self, two_cpus, masks_of, sandbox):
        mask, seen, stderr = masks_of("--cpus", "1", *BIND, prefix=sandbox, variables={"KMP_AFFINITY": "none"})
        assert mask == os.sched_getaffinity(0)
        assert "OMP_PROC_BIND" not in seen["variables"]
        assert seen["variables"]["KMP_AFFINITY"] == "none"
        assert seen["variables"]["PYTHON_CPU_COUNT"] == "1"
        (warning,) = (line for line in stderr.splitlines() if "bound" in line)
        assert warning.startswith("tflaunch: warning: not bound to ")
        assert "Operation not permitted" in warning

    def test_strict(self, two_cpus, tflaunch, script, sandbox):
        done = tflaunch("run", "--cpus", "1", *BIND, "--strict", script("print('ran')"), prefix=sandbox)
        assert (done.returncode, done.stdout) == (125, "")
        what, hint = done.stderr.splitlines()
        assert what.startswith("tflaunch: error: not bound to ")
        assert "Operation not permitted" in what
        assert "--strict" in what
        assert hint.startswith("hint: ")


class TestDryRun:
    """What is printed does the same in a shell."""

    def test_the_lines_are_a_shells(self, two_cpus, tflaunch, script):
        assert shutil.which("taskset"), "install util-linux"
        done = tflaunch("run", "--dry-run", "--cpus", "1", *BIND, script(SHOW_MASKS))
        assert done.returncode == 0, done.stderr
        first, *_, last = done.stdout.splitlines()
        assert first.startswith("# bind: the limit of 1 CPU")
        assert last.startswith("exec taskset -c ")
        ran = tflaunch("-c", done.stdout, prefix=("sh",))
        seen = json.loads(ran.stdout)
        (mask,) = set(seen["masks"].values())
        assert mask == last.split()[3]
        assert len(expand(mask)) == 1
        assert seen["variables"]["PYTHON_CPU_COUNT"] == "1"

    def test_nothing_to_bind(self, tflaunch, script):
        count = str(len(os.sched_getaffinity(0)))
        done = tflaunch("run", "--dry-run", "--cpus", count, "--bind", "cores", script("pass"))
        first, *_, last = done.stdout.splitlines()
        assert first == "# bind: nothing to bind: the plan uses all allowed CPUs"
        assert "taskset" not in last


class TestCost:
    """A start that does not ask for binding does not pay for it."""

    @pytest.mark.parametrize(
        ("options", "is_imported"), [((), False), (("--cpus", "1"), False), (("--cpus", "1", *BIND), True)]
    )
    def test_imports(self, tflaunch, script, options, is_imported):
        variables = {"PYTHONPROFILEIMPORTTIME": "1"}
        done = tflaunch("run", *options, script("pass"), variables=variables)
        assert " tflaunch.decision\n" in done.stderr
        assert (" tflaunch.binding\n" in done.stderr) == is_imported
