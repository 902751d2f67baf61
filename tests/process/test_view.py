"""A process that is shown fewer CPUs: what it and its children are told, and that nothing else is different."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from missing import missing

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the view is for Linux")

MANY_CPUS = Path(__file__).parents[2] / "bench" / "many_cpus.c"
# CPUs by the kernel's own word, by every call that a program can make, and by a child that is no Python.
LOOK = """
import json, multiprocessing, os, subprocess, sys
from concurrent.futures import ThreadPoolExecutor

def look():
    return {
        "kernel": next(line.split()[1] for line in open("/proc/self/status") if line.startswith("Cpus_allowed_list")),
        "mask": sorted(os.sched_getaffinity(0)),
        "online": os.sysconf("SC_NPROCESSORS_ONLN"),
        "configured": os.sysconf("SC_NPROCESSORS_CONF"),
        "python": os.cpu_count(),
    }

def threads(executor=ThreadPoolExecutor()):
    return executor._max_workers

if __name__ == "__main__":
    if "child" in sys.argv:
        print(json.dumps(look()))
        sys.exit()
    getconf = subprocess.run(["getconf", "_NPROCESSORS_ONLN"], capture_output=True, text=True, check=True).stdout
    child = json.loads(subprocess.run([sys.executable, __file__, "child"], capture_output=True, check=True).stdout)
    workers = []
    for method in ("fork", "spawn", "forkserver"):
        with multiprocessing.get_context(method).Pool() as pool:
            workers.append((len(pool._pool), pool.apply(look)))
    print(json.dumps({**look(), "getconf": int(getconf), "child": child, "workers": workers}))
"""
PRINT_ENVIRONMENT = "import json, os; print(json.dumps(dict(os.environ)))"
VIEW_VARIABLES = {"LD_PRELOAD", "TFLAUNCH_VIEW_CPUS", "TFLAUNCH_VIEW_FIRST"}


@pytest.fixture(autouse=True)
def library():
    """The library beside the installed tflaunch; without a C compiler it was left out."""
    found = subprocess.run(
        [sys.executable, "-c", "from tflaunch.view import find_library; print(*find_library(), sep='|')"],
        cwd="/",  # not in the source, where there is another one
        capture_output=True,
        text=True,
        check=True,
    )
    path, _, problem = found.stdout.strip().partition("|")
    if path == "None":
        missing(problem)
    return path


@pytest.fixture(scope="module")
def many_cpus(tmp_path_factory) -> Callable[[int], str]:
    """A library that stands for a machine with so many CPUs: it answers with them when it is preloaded."""

    def build(cpus: int) -> str:
        path = tmp_path_factory.mktemp("emulation") / f"many_cpus_{cpus}.so"
        subprocess.run(
            ["cc", "-shared", "-fPIC", "-O2", f"-DCPUS={cpus}", "-o", path, MANY_CPUS, "-ldl"], check=True, timeout=60
        )
        return str(path)

    return build


def said(done) -> dict:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


class TestProcess:
    """The program and all that it starts see the CPUs of the plan; the kernel's mask stays."""

    def test_the_program_and_its_children(self, tflaunch, script):
        seen = said(tflaunch("run", "--cpus", "1", "--view", "on", script(LOOK)))
        kernel = subprocess.run(["grep", "Cpus_allowed_list", "/proc/self/status"], capture_output=True, text=True)
        assert seen["kernel"] == kernel.stdout.split()[1]
        assert (len(seen["mask"]), seen["online"], seen["configured"], seen["python"], seen["getconf"]) == (1,) * 5
        for look in (seen["child"], *(worker for _, worker in seen["workers"])):
            assert (look["kernel"], look["mask"]) == (seen["kernel"], seen["mask"])
            assert look["online"] == 1
        assert [count for count, _ in seen["workers"]] == [1, 1, 1]

    def test_a_big_host(self, tflaunch, script, many_cpus):
        done = tflaunch("run", "--cpus", "2500m", script(LOOK), variables={"LD_PRELOAD": many_cpus(64)})
        seen = said(done)
        assert seen["mask"] == [0, 1, 2]
        assert (seen["online"], seen["configured"], seen["python"], seen["getconf"]) == (3,) * 4
        assert [(count, look["mask"]) for count, look in seen["workers"]] == [(3, [0, 1, 2])] * 3
        assert "sees 3 of 64 CPUs" in done.stderr

    def test_off(self, tflaunch, script, many_cpus):
        seen = said(
            tflaunch("run", "--cpus", "2", "--view", "off", script(LOOK), variables={"LD_PRELOAD": many_cpus(64)})
        )
        assert (len(seen["mask"]), seen["online"], seen["getconf"]) == (64, 64, 64)

    def test_nothing_is_preloaded_where_the_mask_is_small(self, tflaunch, program, script):
        cpu = min(os.sched_getaffinity(0))
        in_mask = ("taskset", "-c", str(cpu), program)
        environment = said(tflaunch("run", script(PRINT_ENVIRONMENT), prefix=in_mask))
        assert environment["PYTHON_CPU_COUNT"] == "1"
        assert not VIEW_VARIABLES & environment.keys()
        # Asked for, it hides the number of CPUs that the host has too.
        seen = said(tflaunch("run", "--view", "on", script(LOOK), "child", prefix=in_mask))
        assert (seen["mask"], seen["online"], seen["configured"], seen["python"]) == ([cpu], 1, 1, 1)

    def test_the_variables_of_the_view_are_the_only_difference(self, tflaunch, script, many_cpus):
        name, big = script(PRINT_ENVIRONMENT), {"LD_PRELOAD": many_cpus(64)}
        with_view = said(tflaunch("run", "--cpus", "2", name, variables=big))
        without = said(tflaunch("run", "--cpus", "2", "--view", "off", name, variables=big))
        assert {key for key in with_view if with_view[key] != without.get(key)} == {"LD_PRELOAD", "TFLAUNCH_VIEW_CPUS"}
        assert without.keys() <= with_view.keys()

    def test_what_the_caller_preloads_stays(self, tflaunch, script, many_cpus, library):
        other = many_cpus(64)
        environment = said(
            tflaunch("run", "--cpus", "2", script(PRINT_ENVIRONMENT), variables={"LD_PRELOAD": f"{other} {other}"})
        )
        assert environment["LD_PRELOAD"] == f"{library}:{other}:{other}"

    def test_a_module_and_another_program(self, tflaunch, script, many_cpus):
        script(LOOK, name="look.py")
        big = {"LD_PRELOAD": many_cpus(64)}
        assert said(tflaunch("run", "--cpus", "2", "-m", "look", "child", variables=big))["mask"] == [0, 1]
        done = tflaunch("run", "--cpus", "2", "--no-python", "getconf", "_NPROCESSORS_CONF", variables=big)
        assert done.stdout == "2\n"


class TestNested:
    """A tflaunch that is started by a program of tflaunch."""

    @pytest.mark.parametrize(
        ("inner", "mask"),
        [
            ((), [0, 1]),
            (("--cpus", "1"), [0]),
            # More than the outer one allows is not to be had from inside.
            (("--cpus", "9"), [0, 1]),
            (("--view", "off"), list(range(64))),
        ],
    )
    def test_inner(self, tflaunch, program, script, many_cpus, inner, mask):
        outer = ("run", "--cpus", "2", "--no-python", program)
        done = tflaunch(*outer, "run", *inner, script(LOOK), "child", variables={"LD_PRELOAD": many_cpus(64)})
        assert said(done)["mask"] == mask


class TestUnavailable:
    """Without the library everything else works, and one line says what is missing."""

    GONE = "import tflaunch.view; tflaunch.view.find_library = lambda: tflaunch.view.Library(None, 'it is not here')"

    def test_run(self, inside, script, many_cpus):
        big = {"LD_PRELOAD": many_cpus(64)}
        done = inside(self.GONE, "run", "--cpus", "2", script(LOOK), "child", variables=big)
        assert len(said(done)["mask"]) == 64
        told, *more = [line for line in done.stderr.splitlines() if "the view is not available" in line]
        assert told.startswith("tflaunch: warning: the view is not available: it is not here; ")
        assert not more

    def test_nothing_is_said_where_it_would_change_nothing(self, inside, script, many_cpus):
        for options in ((), ("--cpus", "2", "--view", "off"), ("--cpus", "2", "-q")):
            done = inside(self.GONE, "run", *options, script("pass"), variables={"LD_PRELOAD": many_cpus(64)})
            assert (done.returncode, "not available" in done.stderr) == (0, False)

    def test_an_unknown_word(self, tflaunch):
        done = tflaunch("run", "script.py", variables={"TFLAUNCH_VIEW": "maybe"})
        assert done.returncode == 2
        assert done.stderr.splitlines() == [
            "tflaunch: error: TFLAUNCH_VIEW=maybe cannot be used",
            "hint: give one of auto, on, off",
        ]


class TestEnv:
    """`tflaunch env` gives a shell, and all that it starts, the library only when asked for."""

    def test_not_by_itself(self, tflaunch, many_cpus):
        big = {"LD_PRELOAD": many_cpus(64)}
        assert not VIEW_VARIABLES & said(tflaunch("env", "--cpus", "2", "--format", "json", variables=big)).keys()

    def test_in_a_shell(self, tflaunch, program, many_cpus):
        command = f'eval "$({program} env --cpus 2 --view on)" && getconf _NPROCESSORS_ONLN'
        done = tflaunch("-c", command, prefix=("sh",), variables={"LD_PRELOAD": many_cpus(64)})
        assert done.stdout == "2\n"


def test_dry_run(tflaunch, script, many_cpus, library):
    emulation = many_cpus(64)
    done = tflaunch("run", "--cpus", "2", "--dry-run", script("pass"), variables={"LD_PRELOAD": emulation})
    lines = done.stdout.splitlines()
    assert any(line.startswith(f"export LD_PRELOAD={library}:{emulation}  # ") for line in lines)
    assert any(line.startswith("export TFLAUNCH_VIEW_CPUS=2  # ") for line in lines)
