"""The document of `explain --json`, whole, for three machines; written by hand from the trees that are planted here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from types import NoneType, UnionType
from typing import get_args, get_origin, get_type_hints, is_typeddict

import pytest

from tflaunch.api import explain
from tflaunch.document import Document

CPU = "/sys/devices/system/cpu"
# What is installed in the interpreter's path of these tests, so that the readers are the same everywhere.
INSTALLED = ["tensorflow_cpu-2.21.0", "numpy-2.1.0", "scikit_learn-1.5.2", "joblib-1.4.2"]
BLAS_READERS = ["NumPy (OpenBLAS)"]
OMP_READERS = ["NumPy (OpenBLAS)", "scikit-learn (OpenMP)"]
PYTHON_READERS = ["Python (os.cpu_count)"] if sys.version_info >= (3, 13) else []

INTER_OP = "independent operations overlap, and 1 can hang"
OMP = "as intra-op: a parallel region uses the same CPUs"
BLAS = "as OMP: BLAS calls are parallel regions"
BLOCKTIME = "ms that idle OpenMP threads spin; the default of 200 burns quota"


LIBRARY = "/opt/tflaunch/libtflaunch_view.so"
AFFECTED = [
    "TensorFlow (tf.data, XLA)",
    "Python (os.cpu_count, multiprocessing, concurrent.futures)",
    "NumPy (OpenBLAS)",
    "scikit-learn (OpenMP)",
    "joblib",
]


def plant(root, files):
    for path, text in files.items():
        file = root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")


def siblings(*cores):
    """The sibling list of each CPU of the cores, which are given as the kernel lists them: "0,4" or "0-1"."""
    return {
        f"{CPU}/cpu{cpu}/topology/thread_siblings_list": core
        for core in cores
        for cpu in (core.split(",") if "," in core else range(int(core.split("-")[0]), int(core.split("-")[-1]) + 1))
    }


def packages(**cpus):
    return {f"{CPU}/cpu{cpu}/topology/physical_package_id": name[1:] for name, group in cpus.items() for cpu in group}


def view_variables(cpus, reason):
    """What is set where a view is used and nothing else is preloaded."""
    why = f"the program sees {cpus} CPU{'' if cpus == 1 else 's'} when it asks"
    return [
        {
            "name": "LD_PRELOAD",
            "value": LIBRARY,
            "action": "set",
            "reason": why,
            "read_by": ["the dynamic loader"],
        },
        {
            "name": "TFLAUNCH_VIEW_CPUS",
            "value": str(cpus),
            "action": "set",
            "reason": reason,
            "read_by": ["libtflaunch_view.so"],
        },
    ]


def mark(*values):
    """What tells a tflaunch inside which values were computed."""
    why = "a tflaunch inside this one may make these smaller"
    value = " ".join(values)
    return {"name": "TFLAUNCH_COMPUTED", "value": value, "action": "set", "reason": why, "read_by": ["tflaunch"]}


def mark_of_all(threads, cpus):
    """The same where nothing was said: two inter-op threads, and `threads` in every other pool."""
    blas = [f"{name}_NUM_THREADS={threads}" for name in ("OMP", "OPENBLAS", "MKL", "BLIS")]
    others = [f"{name}={threads}" for name in ("VECLIB_MAXIMUM_THREADS", "NUMEXPR_MAX_THREADS", "NUMEXPR_NUM_THREADS")]
    tensorflow = [f"TF_NUM_INTRAOP_THREADS={threads}", "TF_NUM_INTEROP_THREADS=2"]
    rest = [f"NUMBA_NUM_THREADS={threads}", "KMP_BLOCKTIME=1", f"LOKY_MAX_CPU_COUNT={cpus}", f"PYTHON_CPU_COUNT={cpus}"]
    return mark(*tensorflow, *blas, *others, *rest)


def numbers(intra_op, omp, cpu_count, intra_op_reason, cpu_count_reason, omp_reason=OMP):
    return {
        "intra_op": {"value": intra_op, "reason": intra_op_reason},
        "inter_op": {"value": 2, "reason": INTER_OP},
        "omp": {"value": omp, "reason": omp_reason},
        "blas": {"value": omp, "reason": BLAS},
        "kmp_blocktime": {"value": 1, "reason": BLOCKTIME},
        "python_cpu_count": {"value": cpu_count, "reason": cpu_count_reason},
    }


def variables(intra_op, omp, cpu_count, intra_op_reason, cpu_count_reason, omp_reason=OMP, **changed):
    """The rows where nothing is exported, and (value, action, reason) of those where something is."""
    rows = {
        "TF_NUM_INTRAOP_THREADS": (intra_op, intra_op_reason, ["TensorFlow"]),
        "TF_NUM_INTEROP_THREADS": (2, INTER_OP, ["TensorFlow"]),
        "OMP_NUM_THREADS": (omp, omp_reason, OMP_READERS),
        "OPENBLAS_NUM_THREADS": (omp, BLAS, BLAS_READERS),
        "MKL_NUM_THREADS": (omp, BLAS, []),
        "BLIS_NUM_THREADS": (omp, BLAS, []),
        "VECLIB_MAXIMUM_THREADS": (omp, BLAS, []),
        "NUMEXPR_MAX_THREADS": (omp, omp_reason, []),
        "NUMEXPR_NUM_THREADS": (omp, omp_reason, []),
        "NUMBA_NUM_THREADS": (omp, omp_reason, []),
        "KMP_BLOCKTIME": (1, BLOCKTIME, []),
        "LOKY_MAX_CPU_COUNT": (cpu_count, cpu_count_reason, ["joblib"]),
        "PYTHON_CPU_COUNT": (cpu_count, cpu_count_reason, PYTHON_READERS),
    }
    document = []
    for name, (number, why, readers) in rows.items():
        value, action, reason = changed.get(name, (str(number), "set", why))
        document.append({"name": name, "value": value, "action": action, "reason": reason, "read_by": readers})
    return document


# A laptop: four cores of two threads, cgroup v2 without a quota.
LAPTOP_FILES = {
    f"{CPU}/online": "0-7",
    **siblings("0,4", "1,5", "2,6", "3,7"),
    **packages(p0=range(8)),
    "/sys/devices/system/node/node0/cpulist": "0-7",
    "/proc/cpuinfo": "processor\t: 0\nmodel name\t: Some CPU @ 2.10GHz\nflags\t\t: fpu sse2 fma avx avx2",
    "/proc/self/status": "Name:\tpython\nCpus_allowed_list:\t0-7",
    "/proc/self/cgroup": "0::/user.slice/session.scope",
    "/proc/self/mountinfo": "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate",
    "/sys/fs/cgroup/cgroup.controllers": "cpuset cpu io memory pids",
    "/sys/fs/cgroup/user.slice/cpu.max": "max 100000",
}
LAPTOP_NUMBERS = (
    4,
    4,
    8,
    "one for each of 4 physical cores, whose threads share units; the limit is 8 CPUs",
    "the limit of 8 CPUs as whole CPUs, rounded up",
)
LAPTOP = {
    "schema": 1,
    "machine": {
        "online_cpus": "0-7",
        "allowed_cpus": "0-7",
        "cores": 4,
        "sockets": 1,
        "threads_per_core": 2,
        "numa_nodes": {"0": "0-7"},
        "cpu_kinds": [{"kind": "performance", "cpus": "0-7", "cores": 4}],
        "model": "Some CPU @ 2.10GHz",
        "instruction_sets": ["AVX2", "FMA"],
    },
    "limit": {
        "cgroup_version": 2,
        "quota_cpus": None,
        "quota_source": None,
        "cpus": 8.0,
        "bound_by": "affinity",
        "reason": "the allowed CPUs; cgroup v2 sets no quota",
        "readings": [{"source": "/sys/fs/cgroup/user.slice/cpu.max: max 100000", "cpus": None}],
    },
    "plan": numbers(*LAPTOP_NUMBERS),
    "view": {
        "cpus": None,
        "library": None,
        "reason": "the affinity mask has no more CPUs than the plan",
        "affects": [],
    },
    "binding": None,
    "environment": [*variables(*LAPTOP_NUMBERS), mark_of_all(4, 8)],
    "warnings": [],
}

# A container with 2 of 64 CPUs by quota, cgroup v1: two sockets of 16 cores of two threads, nothing bound.
CONTAINER_FILES = {
    f"{CPU}/online": "0-63",
    **siblings(*(f"{core},{core + 32}" for core in range(32))),
    **packages(p0=[*range(16), *range(32, 48)], p1=[*range(16, 32), *range(48, 64)]),
    "/sys/devices/system/node/node0/cpulist": "0-15,32-47",
    "/sys/devices/system/node/node1/cpulist": "16-31,48-63",
    "/proc/self/status": "Cpus_allowed:\tffffffff,ffffffff\nCpus_allowed_list:\t0-63",
    "/proc/self/cgroup": "4:cpu,cpuacct:/docker/abc\n3:cpuset:/docker/abc\n0::/",
    "/proc/self/mountinfo": "40 30 0:33 /docker/abc /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct",
    "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "200000",
    "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000",
}
CONTAINER_SOURCE = "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us: 200000, cpu.cfs_period_us: 100000"
CONTAINER_NUMBERS = (2, 2, 2, "the quota of 2 CPUs", "the limit of 2 CPUs as whole CPUs, rounded up")
CONTAINER = {
    "schema": 1,
    "machine": {
        "online_cpus": "0-63",
        "allowed_cpus": "0-63",
        "cores": 32,
        "sockets": 2,
        "threads_per_core": 2,
        "numa_nodes": {"0": "0-15,32-47", "1": "16-31,48-63"},
        "cpu_kinds": [{"kind": "performance", "cpus": "0-63", "cores": 32}],
        "model": None,
        "instruction_sets": [],
    },
    "limit": {
        "cgroup_version": 1,
        "quota_cpus": 2.0,
        "quota_source": CONTAINER_SOURCE,
        "cpus": 2.0,
        "bound_by": "quota",
        "reason": f"cgroup v1 quota, {CONTAINER_SOURCE}",
        "readings": [{"source": CONTAINER_SOURCE, "cpus": 2.0}],
    },
    "plan": numbers(*CONTAINER_NUMBERS),
    "view": {
        "cpus": 2,
        "library": LIBRARY,
        "reason": "of 64 allowed; the limit of 2 CPUs as whole CPUs, rounded up",
        "affects": AFFECTED,
    },
    "binding": None,
    "environment": [
        *variables(*CONTAINER_NUMBERS),
        *view_variables(2, "the program sees 2 CPUs of 64 allowed; the limit of 2 CPUs as whole CPUs, rounded up"),
        {
            "name": "TFLAUNCH_VIEW_FIRST",
            "value": "0-31",
            "action": "set",
            "reason": "one CPU of each core before their siblings",
            "read_by": ["libtflaunch_view.so"],
        },
        mark_of_all(2, 2),
    ],
    "warnings": [],
}

# Hybrid x86, two performance cores of two threads and four efficiency cores, one of them not allowed; the lower
# of two quotas on the slice above the service; options and exported variables of every kind.
HYBRID_FILES = {
    f"{CPU}/online": "0-7",
    **siblings("0-1", "2-3", "4", "5", "6", "7"),
    **packages(p0=range(8)),
    "/sys/devices/cpu_core/cpus": "0-3",
    "/sys/devices/cpu_atom/cpus": "4-7",
    "/proc/self/status": "Cpus_allowed_list:\t0-6",
    "/proc/self/cgroup": "0::/batch.slice/train.service",
    "/proc/self/mountinfo": "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw",
    "/sys/fs/cgroup/batch.slice/train.service/cpu.max": "300000 100000",
    "/sys/fs/cgroup/batch.slice/cpu.max": "250000 100000",
}
HYBRID_ENVIRONMENT = {
    "TFLAUNCH_VIEW": "off",
    "TFLAUNCH_MODE": "throughput",
    "TFLAUNCH_OMP": "3",
    "OMP_NUM_THREADS": "8",
    "KMP_BLOCKTIME": "forever",
    "TF_NUM_INTEROP_THREADS": "1",
    "LOKY_MAX_CPU_COUNT": "3",
    "OMP_PROC_BIND": "close",
}
HYBRID_SOURCE = "/sys/fs/cgroup/batch.slice/cpu.max: 250000 100000"
HYBRID_NUMBERS = (
    3,
    3,
    3,
    "the quota of 2.5 CPUs, rounded to the nearest",
    "the limit of 2.5 CPUs as whole CPUs, rounded up",
    "TFLAUNCH_OMP=3",
)
HYBRID = {
    "schema": 1,
    "machine": {
        "online_cpus": "0-7",
        "allowed_cpus": "0-6",
        "cores": 5,
        "sockets": 1,
        "threads_per_core": 2,
        "numa_nodes": {},
        "cpu_kinds": [
            {"kind": "performance", "cpus": "0-3", "cores": 2},
            {"kind": "efficiency", "cpus": "4-6", "cores": 3},
        ],
        "model": None,
        "instruction_sets": [],
    },
    "limit": {
        "cgroup_version": 2,
        "quota_cpus": 2.5,
        "quota_source": HYBRID_SOURCE,
        "cpus": 2.5,
        "bound_by": "quota",
        "reason": f"cgroup v2 quota, {HYBRID_SOURCE}",
        "readings": [
            {"source": "/sys/fs/cgroup/batch.slice/train.service/cpu.max: 300000 100000", "cpus": 3.0},
            {"source": HYBRID_SOURCE, "cpus": 2.5},
        ],
    },
    "plan": numbers(*HYBRID_NUMBERS),
    "view": {"cpus": None, "library": None, "reason": "TFLAUNCH_VIEW=off", "affects": []},
    "binding": None,
    "environment": [
        *variables(
            *HYBRID_NUMBERS,
            TF_NUM_INTEROP_THREADS=("1", "keep", "exported; the plan would say 2 (--override-env)"),
            OMP_NUM_THREADS=("3", "replace", "TFLAUNCH_OMP=3; was '8'"),
            KMP_BLOCKTIME=("1", "replace", f"{BLOCKTIME}; was 'forever', no valid value"),
            LOKY_MAX_CPU_COUNT=(
                "3",
                "keep",
                "exported; the plan agrees: the limit of 2.5 CPUs as whole CPUs, rounded up",
            ),
        ),
        {
            "name": "OMP_PROC_BIND",
            "value": "close",
            "action": "keep",
            "reason": "exported; tflaunch sets no binding",
            "read_by": ["OpenMP runtimes"],
        },
        mark("TF_NUM_INTRAOP_THREADS=3", "KMP_BLOCKTIME=1", "PYTHON_CPU_COUNT=3"),
    ],
    "warnings": [
        {
            "code": "invalid_value_replaced",
            "message": "KMP_BLOCKTIME was 'forever', which is no valid value; it is now 1",
        },
        {
            "code": "inter_op_one",
            "message": "TF_NUM_INTEROP_THREADS is 1: programs that nest tf.py_function and tf.function can hang",
        },
        {
            "code": "binding_variable",
            "message": "OMP_PROC_BIND is 'close': binding can leave TensorFlow one CPU; --override-env unsets it",
        },
    ],
}

MACHINES = pytest.mark.parametrize(
    ("files", "environ", "document"),
    [
        pytest.param(LAPTOP_FILES, {}, LAPTOP, id="laptop"),
        pytest.param(CONTAINER_FILES, {}, CONTAINER, id="container-2-of-64"),
        pytest.param(HYBRID_FILES, HYBRID_ENVIRONMENT, HYBRID, id="hybrid"),
    ],
)


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch):
    """No variable that tflaunch reads, whoever runs the tests."""
    for name in list(os.environ):
        if (
            name.startswith(("TFLAUNCH_", "TF_NUM", "OMP_", "KMP_", "GOMP_", "PYTHON_CPU", "LOKY_", "LD_PRELOAD"))
            or "THREADS" in name
        ):
            monkeypatch.delenv(name)


@pytest.fixture
def installed(tmp_path, monkeypatch):
    site = tmp_path / "site"
    for name in INSTALLED:
        (site / f"{name}.dist-info").mkdir(parents=True)
    monkeypatch.setattr(sys, "path", [str(site)])


def export(monkeypatch, environ):
    for name, value in environ.items():
        monkeypatch.setenv(name, value)


def conforms(value, annotation):
    """Whether the value is of the annotated type, all the way down; a whole number is no float here."""
    if is_typeddict(annotation):
        fields = get_type_hints(annotation)
        return (
            type(value) is dict
            and value.keys() == fields.keys()
            and all(conforms(value[name], fields[name]) for name in fields)
        )
    if get_origin(annotation) is list:
        return type(value) is list and all(conforms(item, get_args(annotation)[0]) for item in value)
    if get_origin(annotation) is dict:
        key, item = get_args(annotation)
        return type(value) is dict and all(conforms(k, key) and conforms(v, item) for k, v in value.items())
    if isinstance(annotation, UnionType):
        return any(conforms(value, each) for each in get_args(annotation))
    return type(value) is (NoneType if annotation is None else annotation)


@MACHINES
class TestDocument:
    """The document says all that was found and decided, the same to a program and on the command line."""

    def test_whole(self, files, environ, document, tmp_path, monkeypatch, installed, view_library):
        view_library(LIBRARY)
        plant(tmp_path / "root", files)
        export(monkeypatch, environ)
        assert explain(sysroot=str(tmp_path / "root")) == document

    def test_types(self, files, environ, document, tmp_path, monkeypatch):
        plant(tmp_path / "root", files)
        export(monkeypatch, environ)
        assert conforms(explain(sysroot=str(tmp_path / "root")), Document)

    def test_command_line_prints_what_explain_returns(self, files, environ, document, tmp_path, monkeypatch):
        plant(tmp_path / "root", files)
        export(monkeypatch, environ)
        done = subprocess.run(
            [sys.executable, "-m", "tflaunch", "explain", "--json", "--sysroot", str(tmp_path / "root")],
            cwd="/",  # not in the source, which has a library of its own
            capture_output=True,
            check=True,
        )
        assert json.loads(done.stdout) == explain(sysroot=str(tmp_path / "root"))
        assert done.stderr == b""


class TestOptions:
    """The keywords of explain() and the options of the command line are the same."""

    def test_keywords(self, tmp_path, installed):
        plant(tmp_path / "root", HYBRID_FILES)
        document = explain(cpus="1500m", rounding="ceil", inter_op=3, sysroot=str(tmp_path / "root"))
        assert (document["limit"]["cpus"], document["limit"]["bound_by"]) == (1.5, "option")
        assert document["limit"]["reason"] == "cpus=1500m"
        assert document["plan"]["intra_op"] == {
            "value": 2,
            "reason": "the limit of 1.5 CPUs, rounded up (rounding=ceil)",
        }
        assert document["plan"]["inter_op"] == {"value": 3, "reason": "inter_op=3"}

    def test_the_command_line_names_the_flag(self, tmp_path):
        plant(tmp_path / "root", HYBRID_FILES)
        root = ["--json", "--sysroot", str(tmp_path / "root")]
        done = subprocess.run(
            [sys.executable, "-m", "tflaunch", "explain", "--cpus", "1500m", "--override-env", *root],
            env={**os.environ, "OMP_NUM_THREADS": "5", "KMP_AFFINITY": "compact"},
            capture_output=True,
            check=True,
        )
        document = json.loads(done.stdout)
        assert document["limit"]["reason"] == "--cpus 1500m"
        rows = {row["name"]: row for row in document["environment"]}
        assert (rows["OMP_NUM_THREADS"]["value"], rows["OMP_NUM_THREADS"]["action"]) == ("2", "replace")
        assert (rows["KMP_AFFINITY"]["value"], rows["KMP_AFFINITY"]["action"]) == (None, "unset")
        assert document["warnings"] == []


class TestUnusableFiles:
    """A file that cannot be used costs one warning of its kind, those that only explain reads included."""

    def test_warnings(self, tmp_path):
        plant(
            tmp_path / "root",
            {
                **LAPTOP_FILES,
                "/sys/fs/cgroup/user.slice/cpu.max": "lots",
                "/sys/devices/system/node/node0/cpulist": "x",
            },
        )
        document = explain(sysroot=str(tmp_path / "root"))
        assert {warning["code"] for warning in document["warnings"]} == {"malformed_file"}
        told = " ".join(warning["message"] for warning in document["warnings"])
        assert "/sys/fs/cgroup/user.slice/cpu.max: lots" in told
        assert document["limit"]["bound_by"] == "affinity"
        assert document["machine"]["numa_nodes"] == {}
        assert len(document["warnings"]) == 1
