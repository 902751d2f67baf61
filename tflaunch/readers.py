"""Who reads a variable: the packages installed for this interpreter, found by their metadata, never by importing them.

Sources: the projects' documentation of their variables, and for TensorFlow measurements (docs/policy.md): the stock
wheel maps no OpenMP runtime and reads no OMP_* or KMP_* variable; intel-tensorflow and zentf do.
"""

from __future__ import annotations

import os
import sys

TENSORFLOW = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")
OPENBLAS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")
INTEL_OPENMP = ("OMP_NUM_THREADS", "KMP_BLOCKTIME")

# distribution: (what people call it, the variables it reads)
DISTRIBUTIONS = {
    "tensorflow": ("TensorFlow", TENSORFLOW),
    "tensorflow-cpu": ("TensorFlow", TENSORFLOW),
    "tf-nightly": ("TensorFlow", TENSORFLOW),
    "tf-nightly-cpu": ("TensorFlow", TENSORFLOW),
    "intel-tensorflow": ("TensorFlow (OpenMP build)", (*TENSORFLOW, *INTEL_OPENMP)),
    "intel-extension-for-tensorflow": ("Intel Extension for TensorFlow", INTEL_OPENMP),
    "zentf": ("zentf", INTEL_OPENMP),
    "numpy": ("NumPy (OpenBLAS)", OPENBLAS),
    "scipy": ("SciPy (OpenBLAS)", OPENBLAS),
    "scikit-learn": ("scikit-learn (OpenMP)", ("OMP_NUM_THREADS",)),
    "joblib": ("joblib", ("LOKY_MAX_CPU_COUNT",)),
    "mkl": ("MKL", ("MKL_NUM_THREADS", "OMP_NUM_THREADS")),
    "intel-openmp": ("Intel OpenMP", INTEL_OPENMP),
    "numexpr": ("NumExpr", ("NUMEXPR_MAX_THREADS", "NUMEXPR_NUM_THREADS", "OMP_NUM_THREADS")),
    "numba": ("Numba", ("NUMBA_NUM_THREADS",)),
    "torch": ("PyTorch", ("OMP_NUM_THREADS", "MKL_NUM_THREADS")),
}


def installed_distributions() -> frozenset[str]:
    """The normalized names of the distributions on this interpreter's path, from the names of their metadata."""
    names = set()
    for directory in sys.path:
        try:
            entries = os.listdir(directory or ".")
        except OSError:
            continue
        for entry in entries:
            stem, dot, suffix = entry.rpartition(".")
            if dot and suffix in ("dist-info", "egg-info"):
                names.add(stem.partition("-")[0].lower().replace("_", "-").replace(".", "-"))
    return frozenset(names)


def read_by(variable: str, installed: frozenset[str]) -> list[str]:
    """Who reads the variable; empty when nothing installed does."""
    if variable == "PYTHON_CPU_COUNT":
        return ["Python (os.cpu_count)"] if sys.version_info >= (3, 13) else []
    readers = (DISTRIBUTIONS[name] for name in DISTRIBUTIONS if name in installed)
    return list(dict.fromkeys(label for label, variables in readers if variable in variables))
