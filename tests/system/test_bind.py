"""--bind cores in real groups: refused under a quota without a cpuset, obeyed with one or with --bind-anyway."""

from __future__ import annotations

import os

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system binds no processes")

SHOW = ("--no-python", "grep", "-h", "Cpus_allowed_list", "/proc/self/status")


@pytest.fixture
def group(cpu_cgroups):
    """A group with half a CPU."""
    group = cpu_cgroups.make()
    cpu_cgroups.limit(group, 0.5)
    return group


class TestQuota:
    """All containers of a host with such a quota would take the same CPUs."""

    @pytest.mark.parametrize(
        ("options", "variables", "said"),
        [(("--bind", "cores"), {}, "--bind cores"), ((), {"TFLAUNCH_BIND": "cores"}, "TFLAUNCH_BIND=cores")],
        ids=["option", "variable"],
    )
    def test_refused(self, group, two_cores, tflaunch_in, options, variables, said):
        done = tflaunch_in([group], "run", *options, *SHOW, variables=variables)
        assert (done.returncode, done.stdout) == (2, "")
        what, hint = done.stderr.splitlines()
        assert what.startswith(f"tflaunch: error: {said} under a quota of 0.5 CPUs without a cpuset")
        assert "every container" in what
        assert hint.startswith("hint: ")
        assert "--bind-anyway" in hint

    @pytest.mark.parametrize(
        ("options", "variables"),
        [(("--bind", "cores", "--bind-anyway"), {}), ((), {"TFLAUNCH_BIND": "cores", "TFLAUNCH_BIND_ANYWAY": "1"})],
        ids=["options", "variables"],
    )
    def test_anyway(self, group, two_cores, tflaunch_in, options, variables):
        done = tflaunch_in([group], "run", *options, *SHOW, variables=variables)
        assert done.returncode == 0, done.stderr
        mask = done.stdout.split()[1]
        assert mask.isdigit()
        assert int(mask) in os.sched_getaffinity(0)
        (line,) = done.stderr.splitlines()
        assert line.endswith(f", bound to {mask}")

    def test_the_limit_that_the_user_says(self, two_cores, cpu_cgroups, tflaunch_in):
        """--cpus alone is no quota, so nothing says that there are other containers."""
        done = tflaunch_in([cpu_cgroups.make()], "run", "--cpus", "1", "--bind", "cores", *SHOW)
        assert done.returncode == 0, done.stderr
        assert int(done.stdout.split()[1]) in os.sched_getaffinity(0)

    def test_with_a_cpuset(self, two_cores, cpu_cgroups, cpuset_cgroups, tflaunch_in):
        """The CPUs are the container's own; on a machine of two CPUs one of them leaves nothing to choose."""
        allowed = sorted(os.sched_getaffinity(0))
        own = allowed[1:]
        cpuset, cpu = cpuset_cgroups.make(), cpu_cgroups.make()
        if cpuset_cgroups.version == 2:  # one hierarchy has both controllers, and a process is in one group of it
            cpu = cpuset
        cpuset_cgroups.limit(cpuset, ",".join(map(str, own)))
        cpu_cgroups.limit(cpu, 0.5)
        done = tflaunch_in(list({cpuset, cpu}), "run", "--bind", "cores", *SHOW)
        assert done.returncode == 0, done.stderr
        mask = done.stdout.split()[1]
        assert mask.isdigit()
        assert int(mask) in own
        assert ("nothing to bind" in done.stderr) == (len(own) == 1)
