"""Planned against observed: the document, and every way in which it does not agree."""

from __future__ import annotations

import json

import pytest

from tflaunch.builds import Build
from tflaunch.tensorflow_log import Pool
from tflaunch.verification import Probe, make_fresh, make_of_script, planned_blas, planned_numbers, with_timeout

BUILD = Build("tensorflow-cpu", "2.21.0", (), ())
PLANNED = {"intra_op": 3, "inter_op": 2, "omp": 3}
BLAS = {"openblas": 3, "mkl": 2, "blis": 4}
LOGGED = {"intra_op": 3, "inter_op": 2, "session_inter_op": 2}
# A process that sees 64 CPUs.
PROBE = Probe(
    tensorflow="2.21.0",
    grown={**LOGGED, "graph": 1, "warm_iterator": 4, "iterator_of_one": 3, "iterator": 66, "jit_compile": 110},
    logged=LOGGED,
    xla_intra_op=3,
    process_threads=197,
    allowed_cpus=64,
    libraries=[
        {"api": "openmp", "kind": "openmp", "library": "libgomp", "threads": 3},
        {"api": "blas", "kind": "openblas", "library": "libscipy_openblas", "threads": 3},
    ],
)


def test_golden():
    """The whole document of a fresh interpreter where all is as planned."""
    assert json.loads(json.dumps(make_fresh(PLANNED, BLAS, PROBE, BUILD))) == {
        "schema": 1,
        "tensorflow": "2.21.0",
        "distribution": "tensorflow-cpu",
        "planned": {"intra_op": 3, "inter_op": 2, "omp": 3},
        "observed": {
            "intra_op": {"log": 3, "threads": 3},
            "inter_op": {"log": 2, "threads": 2},
            "session_inter_op": {"log": 2, "threads": 2},
            "allowed_cpus": 64,
            "process_threads": 197,
        },
        "view": None,
        "pools": [
            {"name": "tf.data", "threads": 64, "sized_by": "CPUs the process sees, for every iterator"},
            {"name": "XLAEigen", "threads": 3, "sized_by": "intra-op"},
            {
                "name": "XLA",
                "threads": 107,
                "sized_by": "CPUs the process sees (host executor, code generation), 10 fixed (async compiler)",
            },
            {
                "name": "libscipy_openblas",
                "threads": 3,
                "sized_by": "OPENBLAS_NUM_THREADS, else OMP_NUM_THREADS",
            },
        ],
        "openmp": [{"library": "libgomp", "threads": 3}],
        "agrees": True,
        "differences": [],
    }


def test_golden_of_a_script():
    pools = (Pool("intra_op", 3), Pool("intra_op", 3), Pool("inter_op", 2))
    assert json.loads(json.dumps(make_of_script(PLANNED, pools, 40, 8, BUILD))) == {
        "schema": 1,
        "tensorflow": "2.21.0",
        "distribution": "tensorflow-cpu",
        "planned": {"intra_op": 3, "inter_op": 2, "omp": 3},
        "observed": {
            "intra_op": {"log": 3, "threads": None},
            "inter_op": {"log": 2, "threads": None},
            "session_inter_op": {"log": None, "threads": None},
            "inter_op_pools": [2],
            "allowed_cpus": 8,
            "process_threads": 40,
        },
        "view": None,
        "pools": [],
        "openmp": [],
        "agrees": True,
        "differences": [],
    }


class TestDisagreement:
    """The check can fail: each observation that lies is found, by itself."""

    @pytest.mark.parametrize("pool", LOGGED)
    def test_log_against_threads(self, pool):
        document = make_fresh(PLANNED, BLAS, PROBE._replace(logged={**LOGGED, pool: 7}), BUILD)
        assert not document["agrees"]
        (difference,) = document["differences"]
        assert (difference["pool"], difference["kind"]) == (pool, "observations_disagree")
        assert "7" in difference["reason"]

    @pytest.mark.parametrize("pool", LOGGED)
    def test_threads_against_log_and_plan(self, pool):
        document = make_fresh(PLANNED, BLAS, PROBE._replace(grown={**PROBE.grown, pool: 7}), BUILD)
        kinds = [(row["pool"], row["kind"]) for row in document["differences"]]
        assert kinds == [(pool, "observations_disagree"), (pool, "not_as_planned")]

    @pytest.mark.parametrize("pool", LOGGED)
    def test_both_against_the_plan(self, pool):
        probe = PROBE._replace(grown={**PROBE.grown, pool: 7}, logged={**LOGGED, pool: 7})
        (difference,) = make_fresh(PLANNED, BLAS, probe, BUILD)["differences"]
        wanted = {"intra_op": 3, "inter_op": 2, "session_inter_op": 2}[pool]
        assert difference == {
            "pool": pool,
            "kind": "not_as_planned",
            "planned": wanted,
            "observed": [7],
            "reason": None,
        }

    @pytest.mark.parametrize("pool", LOGGED)
    def test_no_line_in_the_log(self, pool):
        logged = {name: threads for name, threads in LOGGED.items() if name != pool}
        (difference,) = make_fresh(PLANNED, BLAS, PROBE._replace(logged=logged), BUILD)["differences"]
        assert (difference["pool"], difference["kind"]) == (pool, "observations_disagree")

    @pytest.mark.parametrize(("api", "name"), [("openmp", "libgomp"), ("blas", "libscipy_openblas")])
    def test_libraries(self, api, name):
        libraries = [{**row, "threads": 64} if row["api"] == api else row for row in PROBE.libraries]
        (difference,) = make_fresh(PLANNED, BLAS, PROBE._replace(libraries=libraries), BUILD)["differences"]
        assert (difference["pool"], difference["planned"], difference["observed"]) == (name, 3, [64])

    def test_fewer_blas_threads_are_no_fault(self):
        """OpenBLAS makes no more than it sees CPUs, and than it was built for."""
        libraries = [{"api": "blas", "kind": "openblas", "library": "libopenblas", "threads": 2}]
        assert make_fresh(PLANNED, BLAS, PROBE._replace(libraries=libraries), BUILD)["agrees"]

    @pytest.mark.parametrize(("kind", "threads", "agrees"), [("mkl", 2, True), ("mkl", 3, False), ("other", 9, True)])
    def test_each_blas_has_its_own_variable(self, kind, threads, agrees):
        libraries = [{"api": "blas", "kind": kind, "library": "lib", "threads": threads}]
        assert make_fresh(PLANNED, BLAS, PROBE._replace(libraries=libraries), BUILD)["agrees"] == agrees


class TestScript:
    """Any pool of another size is a difference, and the reason is the script's own setting."""

    def test_intra_op(self):
        document = make_of_script(PLANNED, (Pool("intra_op", 5), Pool("inter_op", 2)), 9, 8, BUILD)
        (difference,) = document["differences"]
        assert (difference["pool"], difference["planned"], difference["observed"]) == ("intra_op", 3, [5])
        assert "set_*" in difference["reason"]

    def test_a_later_session_with_a_pool_of_its_own(self):
        pools = (Pool("intra_op", 3), Pool("inter_op", 2), Pool("inter_op", 6), Pool("inter_op", 4))
        document = make_of_script(PLANNED, pools, 9, 8, BUILD)
        assert document["observed"]["inter_op_pools"] == [2, 6, 4]
        assert [row["observed"] for row in document["differences"]] == [[4, 6]]

    def test_nothing_observed(self):
        """A script that uses no TensorFlow, or silences its log, has not been verified."""
        document = make_of_script(PLANNED, (), 1, 8, None)
        assert not document["agrees"]
        (difference,) = document["differences"]
        assert difference["kind"] == "not_observed"
        assert "TF_CPP_MIN_LOG_LEVEL" in difference["reason"]
        assert (document["tensorflow"], document["distribution"]) == (None, None)

    @pytest.mark.parametrize("inter_op", [1, 2])
    def test_timeout(self, inter_op):
        """A hang for want of an inter-op thread is possible at any number of them."""
        document = make_of_script({**PLANNED, "inter_op": inter_op}, (Pool("inter_op", inter_op),), 1, 8, BUILD)
        (difference,) = with_timeout(document, 2.5)["differences"]
        assert difference["kind"] == "timeout"
        assert "2.5 s" in difference["reason"]
        assert "py_function" in difference["reason"]
        assert f"{inter_op} inter-op thread" in difference["reason"]

    def test_timeout_without_tensorflow(self):
        document = with_timeout(make_of_script(PLANNED, (), 1, 8, BUILD), 2.5)
        assert not document["agrees"]
        assert document["differences"][-1]["reason"] == "the script did not end within 2.5 s"


def test_planned_numbers():
    """What the program gets, exported values included."""
    environ = {
        "TF_NUM_INTRAOP_THREADS": " 3 ",
        "TF_NUM_INTEROP_THREADS": "02",
        "OMP_NUM_THREADS": "4,2",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "5",
        "BLIS_NUM_THREADS": "6",
    }
    assert planned_numbers(environ) == {"intra_op": 3, "inter_op": 2, "omp": 4}
    assert planned_blas(environ) == {"openblas": 1, "mkl": 5, "blis": 6}
