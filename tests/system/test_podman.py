"""Real containers: what podman's options make of them, what the kernel then enforces, and what tflaunch says of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest
from missing import missing
from shared import cpus_of
from system.podman import ROOT, running, this_machine

PROGRAM = str(Path(sys.executable).parent / "tflaunch")
LAST_CPU = str(max(os.sched_getaffinity(0)))

ENVIRON = """
import json, os
print(json.dumps(dict(os.environ)))
"""

# The growth of the process's threads as each pool is made.
POOLS = """
import json, os
import tensorflow as tf
from tensorflow.python.client import device_lib
from tensorflow.python.eager import context

def count():
    return len(os.listdir("/proc/self/task"))

with tf.Graph().as_default():
    tf.constant(1)
counts = [count()]
device_lib.list_local_devices()
counts.append(count())
context.ensure_initialized()
counts.append(count())
assert int(tf.reduce_sum(tf.ones((8, 8)) @ tf.ones((8, 8)))) == 512
print(json.dumps({"intra_op": counts[1] - counts[0], "inter_op": counts[2] - counts[1], "all": count()}))
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A directory that every container sees, with the programs they run."""
    directory = tmp_path_factory.mktemp("programs")
    (directory / "environ.py").write_text(ENVIRON)
    (directory / "pools.py").write_text(POOLS)
    return directory


@pytest.fixture(scope="module")
def start(place):
    """A running container with these options of podman; a name of its own for each."""
    names = (f"tflaunch-test-{os.getpid()}-{number}" for number in range(1000))
    # Its first process does nothing; commands are run beside it, in the same cgroups.
    return lambda *options: running(
        f"--volume={place}:{place}:ro", *options, *this_machine(), "sleep", "infinity", name=next(names)
    )


def explain(container, *options, variables=None):
    done = container.run(PROGRAM, "explain", "--json", *options, variables=variables)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


class Case(NamedTuple):
    """Options of podman, the quota that they ask for, and the intra-op threads that it is worth on two cores."""

    options: tuple[str, ...]
    quota: float | None
    threads: int = 1


CASES = {
    "half a CPU": Case(("--cpus=0.5",), 0.5),
    "one CPU": Case(("--cpus=1",), 1),
    "one and a half": Case(("--cpus=1.5",), 1.5, 2),
    "two CPUs": Case(("--cpus=2",), 2, 2),
    "another period": Case(("--cpu-period=20000", "--cpu-quota=30000"), 1.5, 2),
    "cpuset": Case((f"--cpuset-cpus={LAST_CPU}",), None),
    "cpuset and quota": Case((f"--cpuset-cpus={LAST_CPU}", "--cpus=0.5"), 0.5),
    "cpuset below the quota": Case((f"--cpuset-cpus={LAST_CPU}", "--cpus=1.5"), 1.5),
    "shares": Case(("--cpu-shares=512",), None, 2),
    "cgroup namespace of the host": Case(("--cgroupns=host", "--cpus=1.5"), 1.5, 2),
    "cgroup namespace of its own": Case(("--cgroupns=private", "--cpus=1.5"), 1.5, 2),
    "the host's cgroups mounted": Case(
        ("--cgroupns=host", "--volume=/sys/fs/cgroup:/sys/fs/cgroup:ro", "--cpus=0.5"), 0.5
    ),
    "memory": Case(("--memory=1g",), None, 2),
    "pids": Case(("--pids-limit=100", "--cpus=1.5"), 1.5, 2),
    "no writing and no capabilities": Case(
        ("--read-only", "--read-only-tmpfs=false", "--cap-drop=ALL", "--security-opt=no-new-privileges", "--cpus=1.5"),
        1.5,
        2,
    ),
    "first process that reaps": Case(("--init", "--cpus=0.5"), 0.5),
}


class Seen(NamedTuple):
    """What a container of a case looks like from the host, and what tflaunch says in it."""

    allowed_cpus: str
    quotas: list
    document: dict
    shown: str  # the file of the quota that tflaunch names, as the container has it
    before: dict
    environ: dict
    stderr: str


@pytest.fixture(scope="module", params=CASES.values(), ids=CASES)
def case(request, two_cores):
    return request.param


@pytest.fixture(scope="module")
def seen(case, start, place):
    with start(*case.options) as container:
        document = explain(container)
        source = document["limit"]["quota_source"]
        shown = container.run("cat", source.partition(": ")[0]).stdout if source else ""
        before = container.run(sys.executable, str(place / "environ.py"))
        done = container.run(PROGRAM, "run", str(place / "environ.py"))
        assert done.returncode == 0, done.stderr
        return Seen(
            container.allowed_cpus,
            container.quotas(),
            document,
            shown.strip(),
            json.loads(before.stdout),
            json.loads(done.stdout),
            done.stderr,
        )


class TestLimit:
    def test_podman_asked_the_kernel_for_it(self, case, seen):
        """Otherwise the tests below would show nothing."""
        assert seen.quotas[0] == case.quota

    def test_explain(self, case, seen):
        quota = min(filter(None, seen.quotas), default=None)
        allowed = len(cpus_of(seen.allowed_cpus))
        machine, limit = seen.document["machine"], seen.document["limit"]
        assert machine["allowed_cpus"] == seen.allowed_cpus
        assert limit["quota_cpus"] == quota
        assert limit["cpus"] == min(quota or allowed, allowed)
        if quota is None or quota > allowed:
            assert limit["bound_by"] == "affinity"
        else:
            assert limit["bound_by"] in ({"quota"} if quota < allowed else {"quota", "affinity"})
        assert seen.document["warnings"] == []

    def test_the_source_is_what_the_container_has(self, case, seen):
        source = seen.document["limit"]["quota_source"]
        if case.quota is None:
            assert source is None
        else:
            file, _, text = source.partition(": ")
            assert Path(file).name in {"cpu.max", "cpu.cfs_quota_us"}
            assert seen.shown
            assert text.split(",")[0] == seen.shown

    def test_the_script_gets_what_explain_shows(self, case, seen):
        changes = {entry["name"]: entry["value"] for entry in seen.document["environment"]}
        assert {entry["action"] for entry in seen.document["environment"]} == {"set"}
        assert seen.environ == {**seen.before, **changes}
        assert seen.environ["TF_NUM_INTRAOP_THREADS"] == seen.environ["OMP_NUM_THREADS"] == str(case.threads)
        (line,) = seen.stderr.splitlines()
        assert f"intra-op {case.threads}, inter-op 2, OMP {case.threads}" in line


def remove_groups_below(group: Path) -> None:
    """podman's, and its monitor's, which ends a moment after the container."""
    deadline = time.monotonic() + 10
    for directory, _, _ in os.walk(group, topdown=False):
        while Path(directory) != group:
            try:
                os.rmdir(directory)
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise


class TestParent:
    """A limit on the cgroup above the container's own."""

    @pytest.fixture
    def parent(self, cpu_cgroups):
        """The cgroup, with 0.7 CPUs. podman makes one of the same name for each other controller."""
        group = cpu_cgroups.make()
        cpu_cgroups.limit(group, 0.7)
        yield group.name
        others = {path.resolve() for path in Path("/sys/fs/cgroup").glob(f"*/{group.name}")}
        for made in {group.resolve(), *others}:
            remove_groups_below(made)
            if made != group.resolve():
                made.rmdir()

    def test_seen(self, parent, start):
        options = ("--cgroupns=host", "--volume=/sys/fs/cgroup:/sys/fs/cgroup:ro")
        with start(f"--cgroup-parent=/{parent}", *options) as container:
            document = explain(container)
            assert container.quotas()[:2] == [None, 0.7]
        assert document["limit"]["quota_cpus"] == document["limit"]["cpus"] == 0.7
        assert f"/{parent}/" in document["limit"]["quota_source"]

    def test_not_to_be_seen(self, parent, start, place):
        """No file in the container shows it, so the user must say it."""
        with start(f"--cgroup-parent=/{parent}", "--cgroupns=private") as container:
            alone = explain(container)
            option = explain(container, "--cpus", "0.7")
            variable = explain(container, variables={"TFLAUNCH_CPUS": "700m"})
            done = container.run(PROGRAM, "run", "--cpus", "0.7", str(place / "environ.py"))
            assert container.quotas()[:2] == [None, 0.7]
            allowed = len(cpus_of(container.allowed_cpus))
        assert (alone["limit"]["quota_cpus"], alone["limit"]["cpus"]) == (None, allowed)
        for document in (option, variable):
            assert (document["limit"]["cpus"], document["limit"]["bound_by"]) == (0.7, "option")
        assert json.loads(done.stdout)["TF_NUM_INTRAOP_THREADS"] == "1"

    def test_files_that_do_not_tell_whose_they_are(self, start):
        """All cgroups of the host, mounted into a cgroup namespace: which is the container's own, nothing says."""
        options = ("--cgroupns=private", "--volume=/sys/fs/cgroup:/sys/fs/cgroup:ro")
        with start(*options, "--cpus=0.5") as container:
            document = explain(container)
            assert container.quotas()[0] == 0.5
        assert document["limit"]["quota_cpus"] is None
        (warning,) = document["warnings"]
        assert "TFLAUNCH_CPUS" in warning["message"]


@pytest.mark.parametrize(
    ("options", "threads"),
    [(["--cpus=1"], 1), (["--cpus=1.5"], 2), ([f"--cpuset-cpus={LAST_CPU}"], 1)],
    ids=["one CPU", "one and a half", "cpuset"],
)
class TestTensorFlow:
    """The pools that a real TensorFlow makes."""

    def test_verify(self, start, two_cores, options, threads):
        with start(*options) as container:
            done = container.run(PROGRAM, "verify", "--json")
        document = json.loads(done.stdout)
        assert done.returncode == 0, document["differences"]
        assert document["observed"]["intra_op"] == {"log": threads, "threads": threads}
        assert document["observed"]["inter_op"] == {"log": 2, "threads": 2}


def test_threads_of_a_script(start, two_cores, place):
    with start("--cpus=1.5") as container:
        done = container.run(PROGRAM, "run", str(place / "pools.py"))
    assert done.returncode == 0, done.stderr
    pools = json.loads(done.stdout)
    assert (pools["intra_op"], pools["inter_op"]) == (2, 2)


def test_fewer_threads_than_the_container_may_have(start, place):
    """On a host of 64 CPUs, which are emulated, TensorFlow by itself ends where a container may have 100 threads."""
    library, source = place / "many_cpus.so", ROOT / "bench" / "many_cpus.c"
    try:
        subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-DCPUS=64", "-o", library, source, "-ldl"], check=True)
    except FileNotFoundError:
        missing("there is no C compiler")
    many_cpus = {"LD_PRELOAD": str(library)}
    with start("--pids-limit=100", "--cpus=1") as container:
        plain = container.run(sys.executable, str(place / "pools.py"), variables=many_cpus)
        done = container.run(PROGRAM, "run", str(place / "pools.py"), variables=many_cpus)
    assert plain.returncode != 0
    assert "pthread_create" in plain.stderr
    assert done.returncode == 0, done.stderr
    pools = json.loads(done.stdout)
    assert (pools["intra_op"], pools["inter_op"]) == (1, 2)
    assert pools["all"] < 20
