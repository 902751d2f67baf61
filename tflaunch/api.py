"""The Python API: `explain` and `apply`."""

from __future__ import annotations

import os
import sys
import warnings

from tflaunch.decision import check_strict, decide
from tflaunch.document import Document, make_document
from tflaunch.environment import apply_changes
from tflaunch.errors import TooLateError
from tflaunch.files import Files, Problem, open_tree
from tflaunch.machine import read_details
from tflaunch.options import Options, parse_options


def explain(
    *,
    cpus: float | str | None = None,
    intra_op: int | None = None,
    inter_op: int | None = None,
    omp: int | None = None,
    mode: str | None = None,
    rounding: str | None = None,
    override_env: bool | None = None,
    view: str | None = None,
    bind: str | None = None,
    bind_anyway: bool | None = None,
    strict: bool | None = None,
    sysroot: str = "/",
) -> Document:
    """What `tflaunch explain --json` prints, as a typed dictionary.

    The options are those of the command line; what is None comes from TFLAUNCH_* or the default. UsageError for a
    value that cannot be used.
    """
    options = _options(locals())
    files = open_tree(sysroot)
    decision = decide(files, options, os.environ)
    details = read_details(files, decision.machine)
    check_strict(files, options)
    return make_document(decision, details, files)


def apply(
    *,
    cpus: float | str | None = None,
    intra_op: int | None = None,
    inter_op: int | None = None,
    omp: int | None = None,
    mode: str | None = None,
    rounding: str | None = None,
    override_env: bool | None = None,
    strict: bool | None = None,
) -> dict[str, str]:
    """Set up the running process, in the first cell of a notebook; returns the values now in force.

    Before TensorFlow is imported the variables are exported. When it is imported and has made no pools yet,
    tf.config.threading.set_* is called too. After the first operation its pools cannot change any more: TooLateError,
    and nothing is changed. PYTHON_CPU_COUNT holds for the Pythons that this one starts. Libraries that are imported
    already keep the pools they made at their import; a RuntimeWarning names them. A view and a binding belong to a
    process from its start: TFLAUNCH_VIEW and TFLAUNCH_BIND are for those that `tflaunch run` starts.
    """
    # The library of the view is loaded, and a mask set, when a process starts; this one runs.
    options = _options(locals())._replace(view="off", bind="none")
    files = Files()
    decision = decide(files, options, os.environ)
    environ = apply_changes(decision.sizes, os.environ)
    _set_in_tensorflow(int(environ["TF_NUM_INTRAOP_THREADS"]), int(environ["TF_NUM_INTEROP_THREADS"]))
    for change in (*decision.sizes, *decision.mark):
        if change.value is None:
            os.environ.pop(change.name, None)
        else:
            os.environ[change.name] = change.value
    _warn((*files.problems(), *decision.problems))
    return {change.name: change.value for change in decision.sizes if change.value is not None}


def _options(keywords: dict[str, object]) -> Options:
    said = {name: str(value) for name, value in keywords.items() if value is not None and name != "sysroot"}
    return parse_options(said, os.environ, spelling="keyword")


def _set_in_tensorflow(intra_op: int, inter_op: int) -> None:
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is None:
        return
    threading = tensorflow.config.threading
    try:
        threading.set_intra_op_parallelism_threads(intra_op)
        threading.set_inter_op_parallelism_threads(inter_op)
    except RuntimeError as error:
        raise TooLateError(
            f"TensorFlow has made its thread pools already: {error}",
            "restart the process or kernel and call tflaunch.apply() before the first operation, best before "
            "importing tensorflow",
        ) from None


def _warn(problems: tuple[Problem, ...]) -> None:
    for problem in problems:
        warnings.warn(f"tflaunch: {problem.message}", RuntimeWarning, stacklevel=3)
    imported = [name for name in ("numpy", "scipy", "sklearn", "numba", "numexpr", "torch") if name in sys.modules]
    if imported:
        warnings.warn(
            f"tflaunch: {', '.join(imported)} was imported before apply() and keeps the thread pools made then; "
            "threadpoolctl.threadpool_limits changes those of BLAS and OpenMP",
            RuntimeWarning,
            stacklevel=3,
        )
