"""Real limits of the kernel, and what a real TensorFlow makes of them under tflaunch."""

from __future__ import annotations

import json
import math
import os
import re
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "train.py"


@pytest.fixture
def explain_in(tflaunch_in):
    def explain(groups, *options, **keywords):
        done = tflaunch_in(groups, "explain", "--json", *options, **keywords)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return explain


def value_of(document, name: str) -> str:
    (entry,) = (entry for entry in document["environment"] if entry["name"] == name)
    return entry["value"]


class TestQuota:
    """The quota of the group, exact, with the file that has it."""

    @pytest.mark.parametrize(
        ("cpus", "threads"),
        # As intra-op threads: to the nearest whole number, at least one, never more than the two cores needed here.
        [(0.25, 1), (0.5, 1), (1.0, 1), (1.4, 1), (1.5, 2)],
    )
    def test_of_the_own_group(self, cpu_cgroups, two_cores, explain_in, cpus, threads):
        group = cpu_cgroups.make()
        file = cpu_cgroups.limit(group, cpus)
        document = explain_in([group])
        limit = document["limit"]
        assert (limit["cgroup_version"], limit["quota_cpus"], limit["cpus"]) == (cpu_cgroups.version, cpus, cpus)
        assert limit["bound_by"] == "quota"
        assert limit["quota_source"].startswith(f"{file}: {int(cpus * 100_000)}")
        assert document["plan"]["intra_op"]["value"] == threads
        assert document["plan"]["inter_op"]["value"] == 2
        assert value_of(document, "TF_NUM_INTRAOP_THREADS") == str(threads)
        assert document["warnings"] == []

    def test_another_period(self, cpu_cgroups, two_cores, explain_in):
        """15 ms in each 10 ms: the quota is the quotient of both, whatever the period."""
        group = cpu_cgroups.make()
        if cpu_cgroups.version == 1:
            (group / "cpu.cfs_period_us").write_text("10000")
            (group / "cpu.cfs_quota_us").write_text("15000")
        else:
            (group / "cpu.max").write_text("15000 10000")
        assert explain_in([group])["limit"]["quota_cpus"] == 1.5

    def test_of_the_parent(self, cpu_cgroups, two_cores, explain_in):
        parent = cpu_cgroups.make()
        file = cpu_cgroups.limit(parent, 1.5)
        child = cpu_cgroups.make(parent)
        limit = explain_in([child])["limit"]
        assert (limit["quota_cpus"], limit["bound_by"]) == (1.5, "quota")
        assert limit["quota_source"].startswith(f"{file}: 150000")

    def test_the_smaller_of_both(self, cpu_cgroups, explain_in):
        parent = cpu_cgroups.make()
        cpu_cgroups.limit(parent, 0.75)
        child = cpu_cgroups.make(parent)
        file = cpu_cgroups.limit(child, 0.25)
        limit = explain_in([child])["limit"]
        assert (limit["quota_cpus"], limit["cpus"]) == (0.25, 0.25)
        assert limit["quota_source"].startswith(f"{file}: 25000")

    def test_none(self, cpu_cgroups, explain_in):
        limit = explain_in([cpu_cgroups.make()])["limit"]
        assert (limit["quota_cpus"], limit["quota_source"], limit["bound_by"]) == (None, None, "affinity")
        assert limit["cpus"] == len(os.sched_getaffinity(0))

    def test_above_the_allowed_cpus(self, cpu_cgroups, explain_in):
        allowed = len(os.sched_getaffinity(0))
        group = cpu_cgroups.make()
        cpu_cgroups.limit(group, allowed + 0.5)
        limit = explain_in([group])["limit"]
        assert (limit["quota_cpus"], limit["cpus"], limit["bound_by"]) == (allowed + 0.5, allowed, "affinity")

    def test_what_the_user_says_counts(self, cpu_cgroups, explain_in):
        group = cpu_cgroups.make()
        cpu_cgroups.limit(group, 0.5)
        document = explain_in([group], "--cpus", "1")
        assert (document["limit"]["quota_cpus"], document["limit"]["cpus"]) == (0.5, 1)
        assert document["limit"]["bound_by"] == "option"
        assert len(document["warnings"]) == 1

    def test_run_says_the_limit_and_its_source(self, cpu_cgroups, two_cores, tflaunch_in):
        group = cpu_cgroups.make()
        file = cpu_cgroups.limit(group, 1.5)
        done = tflaunch_in([group], "run", "--no-python", "printenv", "TF_NUM_INTRAOP_THREADS", "OMP_NUM_THREADS")
        assert (done.returncode, done.stdout) == (0, "2\n2\n")
        (line,) = done.stderr.splitlines()
        for words in ("1.5 CPUs", file, "intra-op 2", "inter-op 2", "OMP 2"):
            assert words in line


class TestCpuset:
    """A cpuset narrows the allowed CPUs."""

    def test_one_cpu(self, cpuset_cgroups, explain_in):
        cpu = max(os.sched_getaffinity(0))
        group = cpuset_cgroups.make()
        cpuset_cgroups.limit(group, str(cpu))
        document = explain_in([group])
        machine, limit = document["machine"], document["limit"]
        assert (machine["allowed_cpus"], machine["cores"]) == (str(cpu), 1)
        assert (limit["cpus"], limit["bound_by"]) == (1, "affinity")
        assert document["plan"]["intra_op"]["value"] == 1

    def test_with_a_quota_below_it(self, cpuset_cgroups, cpu_cgroups, explain_in):
        cpuset, cpu = cpuset_cgroups.make(), cpu_cgroups.make()
        if cpuset_cgroups.version == 2:  # one hierarchy has both controllers, and a process is in one group of it
            cpu = cpuset
        cpuset_cgroups.limit(cpuset, str(min(os.sched_getaffinity(0))))
        cpu_cgroups.limit(cpu, 0.5)
        limit = explain_in(list({cpuset, cpu}))["limit"]
        assert (limit["cpus"], limit["bound_by"]) == (0.5, "quota")


SHOW_POOLS = """
import tensorflow as tf
print(int(tf.reduce_sum(tf.ones((8, 8)) @ tf.ones((8, 8)))))
"""


@pytest.mark.parametrize(("cpus", "threads"), [(1.0, 1), (1.5, 2)])
class TestTensorFlow:
    """TensorFlow's own pools have the sizes of the plan, and a training runs to its end."""

    def test_the_pools_of_a_real_process(self, cpu_cgroups, two_cores, tflaunch_in, tmp_path, cpus, threads):
        (tmp_path / "show.py").write_text(SHOW_POOLS)
        group = cpu_cgroups.make()
        cpu_cgroups.limit(group, cpus)
        log = {"TF_CPP_VMODULE": "local_device=1,process_util=1", "TF_CPP_MIN_LOG_LEVEL": "0"}
        done = tflaunch_in([group], "run", "show.py", variables=log, seconds=300)
        assert (done.returncode, done.stdout) == (0, "512\n"), done.stderr
        # TensorFlow's own words; the first device is the one whose pool all operations use.
        intra_op = re.findall(r"LocalDevice using CPU work thread pool: \S+ num_threads=(\d+)", done.stderr)
        inter_op = re.findall(r"Session inter op parallelism threads: (\d+)", done.stderr)
        assert intra_op[:1] == [str(threads)], done.stderr
        assert set(inter_op) == {"2"}, done.stderr

    def test_verify(self, cpu_cgroups, two_cores, tflaunch_in, cpus, threads):
        group = cpu_cgroups.make()
        cpu_cgroups.limit(group, cpus)
        done = tflaunch_in([group], "verify", "--json", seconds=300)
        document = json.loads(done.stdout)
        assert done.returncode == 0, document["differences"]
        assert document["observed"]["intra_op"] == {"log": threads, "threads": threads}
        assert document["observed"]["inter_op"] == {"log": 2, "threads": 2}

    def test_the_example(self, cpu_cgroups, two_cores, tflaunch_in, cpus, threads):
        group = cpu_cgroups.make()
        cpu_cgroups.limit(group, cpus)
        done = tflaunch_in([group], "run", str(EXAMPLE), seconds=300)
        assert done.returncode == 0, done.stderr
        assert "Epoch 1/" in done.stdout
        (accuracy,) = re.findall(r"^test accuracy: (\S+)$", done.stdout, re.MULTILINE)
        assert 0.9 < float(accuracy) <= 1
        settings = dict(re.findall(r"^  (\S.*\S)  +(\S+)$", done.stdout, re.MULTILINE))
        assert settings["TF_NUM_INTRAOP_THREADS"] == settings["OMP_NUM_THREADS"] == str(threads)
        assert settings["TF_NUM_INTEROP_THREADS"] == "2"
        assert settings["CPUs this process may use"] == str(min(math.ceil(cpus), len(os.sched_getaffinity(0))))
        assert int(settings["threads of this process"]) >= threads
        assert f"tflaunch: {cpus:g} CPU" in done.stderr
