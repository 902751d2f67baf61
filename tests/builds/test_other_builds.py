"""Other builds of TensorFlow, each in a virtual environment of its own: who reads what, and that verify observes them.

pytest -m builds        downloads about 1 GB and takes some minutes
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.builds
PROJECT = Path(__file__).resolve().parents[2]

# Each number of intra-op threads, and each of inter-op threads; all pairs of them are tested with the usual build.
PAIRS = ((1, 2), (2, 1), (3, 5), (7, 2), (64, 5))

# What to install; the readers of OMP_NUM_THREADS and KMP_BLOCKTIME that are TensorFlow; the OpenMP runtimes it loads.
BUILDS = {
    "tensorflow-cpu 2.15": (["tensorflow-cpu==2.15.1"], [], [], set()),
    "intel-tensorflow 2.14": (
        ["intel-tensorflow==2.14.0", "numpy<2"],
        ["intel-tensorflow (libiomp5)"],
        ["intel-tensorflow (libiomp5)"],
        {"libiomp"},
    ),
    "zentf": (
        ["zentf==2.21.0.0", "tensorflow-cpu==2.21.0"],
        ["zentf (libiomp5, libgomp)"],
        ["zentf (libiomp5, libgomp)"],
        {"libiomp", "libgomp"},
    ),
}


def python_for_old_releases() -> str:
    """TensorFlow 2.14 and 2.15 exist up to Python 3.11."""
    if sys.version_info < (3, 12):
        return sys.executable
    found = shutil.which("python3.11") or next(map(str, Path.home().glob(".pyenv/versions/3.11.*/bin/python")), None)
    assert found, "Python 3.11 is needed for these releases"
    return found


@pytest.fixture(scope="module", params=BUILDS)
def build(request, tmp_path_factory):
    """The virtual environment, and what is right for it."""
    packages, *right = BUILDS[request.param]
    directory = tmp_path_factory.mktemp("build")
    subprocess.run([python_for_old_releases(), "-m", "venv", directory], check=True)
    subprocess.run([directory / "bin/pip", "install", "-q", *packages, PROJECT], check=True, timeout=1800)
    yield directory / "bin/tflaunch", *right
    shutil.rmtree(directory)


def run(program, *arguments, **variables):
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("TF", "OMP_", "OPENBLAS_"))}
    done = subprocess.run(
        [program, *arguments], env={**environ, **variables}, capture_output=True, text=True, timeout=900
    )
    return done.returncode, json.loads(done.stdout)


def test_build(build):
    """One test, because making the environment is what takes long."""
    program, omp_readers, kmp_readers, runtimes = build
    _, explained = run(program, "explain", "--json")
    readers = {row["name"]: row["read_by"] for row in explained["environment"]}
    assert readers["TF_NUM_INTRAOP_THREADS"] == ["TensorFlow"]
    assert [name for name in readers["OMP_NUM_THREADS"] if "NumPy" not in name and "SciPy" not in name] == omp_readers
    assert readers["KMP_BLOCKTIME"] == kmp_readers

    for intra_op, inter_op in PAIRS:
        variables = {"TF_NUM_INTRAOP_THREADS": str(intra_op), "TF_NUM_INTEROP_THREADS": str(inter_op)}
        status, document = run(program, "verify", "--json", OMP_NUM_THREADS="2", OPENBLAS_NUM_THREADS="2", **variables)
        assert status == 0, document["differences"]
        assert document["observed"]["intra_op"] == {"log": intra_op, "threads": intra_op}
        assert document["observed"]["inter_op"] == {"log": inter_op, "threads": inter_op}
        assert document["observed"]["session_inter_op"] == {"log": inter_op, "threads": inter_op}
        assert {library["library"] for library in document["openmp"]} >= runtimes
        assert all(library["threads"] == 2 for library in document["openmp"])
