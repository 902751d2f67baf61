"""Who reads a variable: the packages installed for this interpreter, found by their metadata, never by importing them.

Sources: the projects' documentation of their variables. A TensorFlow reads OMP_* and KMP_* if its libraries or those of
its plug-ins are linked with an OpenMP runtime (builds.py).
"""

from __future__ import annotations

import sys

from tflaunch._namedtuple import NamedTuple
from tflaunch.builds import Build, find_build, installed_versions
from tflaunch.environment import COMPUTED
from tflaunch.view import LIBRARY

TENSORFLOW = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")
OPENBLAS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")

# distribution: (what people call it, the variables it reads)
DISTRIBUTIONS = {
    "numpy": ("NumPy (OpenBLAS)", OPENBLAS),
    "scipy": ("SciPy (OpenBLAS)", OPENBLAS),
    "scikit-learn": ("scikit-learn (OpenMP)", ("OMP_NUM_THREADS",)),
    "joblib": ("joblib", ("LOKY_MAX_CPU_COUNT",)),
    "mkl": ("MKL", ("MKL_NUM_THREADS", "OMP_NUM_THREADS")),
    "intel-openmp": ("Intel OpenMP", ("OMP_NUM_THREADS", "KMP_BLOCKTIME")),
    "numexpr": ("NumExpr", ("NUMEXPR_MAX_THREADS", "NUMEXPR_NUM_THREADS", "OMP_NUM_THREADS")),
    "numba": ("Numba", ("NUMBA_NUM_THREADS",)),
    "torch": ("PyTorch", ("OMP_NUM_THREADS", "MKL_NUM_THREADS")),
}

# distribution: what people call it, of those that ask the C library how many CPUs there are (tests/matrix)
ASKING = {
    "numpy": "NumPy (OpenBLAS)",
    "scipy": "SciPy (OpenBLAS)",
    "scikit-learn": "scikit-learn (OpenMP)",
    "joblib": "joblib",
    "jaxlib": "JAX (XLA)",
    "numba": "Numba",
    "polars": "Polars",
    "torch": "PyTorch",
}
NOT_ASKING = "static programs, Intel's OpenMP runtime, programs that read /proc/cpuinfo or /sys"


class Installed(NamedTuple):
    """The distributions of this interpreter by their normalized names, and the TensorFlow among them."""

    distributions: frozenset[str]
    build: Build | None


def find_installed() -> Installed:
    """What is on this interpreter's path."""
    return Installed(frozenset(installed_versions(sys.path)), find_build(sys.path))


def read_by(variable: str, installed: Installed) -> list[str]:
    """Who reads the variable; empty when nothing installed does."""
    if variable == "LD_PRELOAD":
        return ["the dynamic loader"]
    if variable.startswith("TFLAUNCH_VIEW_"):
        return [LIBRARY]
    if variable == COMPUTED:
        return ["tflaunch"]
    if variable == "PYTHON_CPU_COUNT":
        return ["Python (os.cpu_count)"] if sys.version_info >= (3, 13) else []
    readers = [DISTRIBUTIONS[name] for name in DISTRIBUTIONS if name in installed.distributions]
    if installed.build is not None:
        readers = [*_tensorflow(installed.build), *readers]
    return list(dict.fromkeys(label for label, variables in readers if variable in variables))


def affected_by_view(installed: Installed) -> list[str]:
    """Who asks how many CPUs there are, and so is answered by the view."""
    tensorflow = ["TensorFlow (tf.data, XLA)"] if installed.build is not None else []
    others = [label for name, label in ASKING.items() if name in installed.distributions]
    return [*tensorflow, "Python (os.cpu_count, multiprocessing, concurrent.futures)", *others]


def _tensorflow(build: Build) -> list[tuple[str, tuple[str, ...]]]:
    """TensorFlow itself, and its OpenMP runtimes where its build or a plug-in needs some."""
    readers: list[tuple[str, tuple[str, ...]]] = [("TensorFlow", TENSORFLOW)]
    if build.openmp:
        label = f"{' '.join(build.plugins) or build.distribution} ({', '.join(build.openmp)})"
        # GNU's runtime reads no KMP_*.
        has_kmp = any(runtime != "libgomp" for runtime in build.openmp)
        readers.append((label, ("OMP_NUM_THREADS", *(["KMP_BLOCKTIME"] if has_kmp else []))))
    return readers
