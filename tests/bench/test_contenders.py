"""What the benchmark says that others choose, for hosts whose answer their own pages give."""

from __future__ import annotations

import pytest
from contenders import AS_DEFAULT, DEFAULT, EMULATED, Host, Limit, Setting, cells, choices, grid, measured_as

# AWS' guide for two sockets of 18 cores with two threads: 72 CPUs, 36 cores.
C5_18XLARGE = Host("c5.18xlarge", 72, cores=36, sockets=2)
HERE = Host("2 CPUs", 2, cores=2, sockets=1)
QUOTA = Limit("quota 1", quota=1.0)
CPUSET = Limit("cpuset 1", cpuset=1)


@pytest.mark.parametrize(
    "peer, pools",
    [
        ("web snippet", (18, 2)),
        ("Intel's guide", (18, 2)),
        ("ITEX launch", (36, 1)),
        ("AMD's guide", (36, 1)),
        ("AWS's guide", (72, 1)),
        (DEFAULT, (72, 72)),
    ],
)
def test_peers_read_the_host_and_no_quota(peer, pools):
    setting = choices(QUOTA, C5_18XLARGE)[peer]
    assert (setting.intra, setting.inter) == pools


def test_on_the_emulated_host_the_default_is_left_to_tensorflow():
    assert choices(QUOTA, EMULATED)[DEFAULT] == Setting(None, None, 64)


def test_tensorflow_knows_a_cpuset_and_the_guides_do_not():
    found = choices(CPUSET, EMULATED)
    assert found[DEFAULT] == Setting(1, 1)
    assert found["AWS's guide"] == Setting(64, 1)


def test_omp_alone_leaves_the_default():
    found = choices(QUOTA, HERE)
    assert {found[name] for name in AS_DEFAULT} == {found[DEFAULT]}


def test_the_grid_has_every_pair_and_for_tf_data_each_view():
    pairs = {(intra, inter) for intra in (1, 2, 3, 4) for inter in (1, 2, 4)}
    assert {(one.intra, one.inter) for one in grid("cnn", QUOTA, HERE)} == pairs
    settings = grid("data", QUOTA, HERE)
    assert {one.sees for one in settings} == {None, 1, 64}
    assert len(settings) == len(set(settings)) == 3 * len(pairs)


def test_equal_settings_are_measured_once():
    measured = cells(QUOTA, HERE, ("cnn",), plans=[Setting(1, 2, 1)])["cnn"]
    assert len(measured) == len(set(measured))
    assert measured_as("cnn", Setting(1, 2, 1)) in measured


def test_a_plan_that_is_in_no_grid_is_measured_too():
    assert Setting(7, 2) in cells(QUOTA, HERE, ("cnn",), plans=[Setting(7, 2)])["cnn"]
