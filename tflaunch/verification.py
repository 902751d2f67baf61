"""What was planned against what was observed: pure, from findings to the document of `verify --json`."""

from __future__ import annotations

from typing import TypedDict

from tflaunch._namedtuple import NamedTuple
from tflaunch.builds import Build
from tflaunch.tensorflow_log import Pool as LoggedPool
from tflaunch.text import natural

# The pools that the plan sizes, each with what people call it.
SIZED_POOLS = {"intra_op": "intra-op", "inter_op": "inter-op (eager)", "session_inter_op": "inter-op (v1 Session)"}
SCRIPT_SETS_IT = (
    "the script sets it: tf.config.threading.set_*, a ConfigProto, or os.environ before it imports TensorFlow"
)
NOT_OBSERVED = "TensorFlow wrote of no pool: the script made none, or sets TF_CPP_MIN_LOG_LEVEL itself"
ASYNC_COMPILER_THREADS = 10
VIEW_NOT_LOADED = "the library of the view was not loaded (LD_PRELOAD), or a mask was set before"
# What sizes a BLAS library, by threadpoolctl's name of its interface.
BLAS_VARIABLES = {"openblas": "OPENBLAS_NUM_THREADS", "mkl": "MKL_NUM_THREADS", "blis": "BLIS_NUM_THREADS"}


class Observed(TypedDict):
    """Threads of a pool by TensorFlow's own log and by counting the process's threads; null where not observed."""

    log: int | None
    threads: int | None


class Pool(TypedDict):
    """A pool that TF_NUM_* does not size."""

    name: str
    threads: int
    sized_by: str


class Library(TypedDict):
    """A loaded OpenMP runtime."""

    library: str
    threads: int


class Difference(TypedDict):
    """kind is "not_as_planned", "observations_disagree", "not_observed" or "timeout"; reason is null where unknown."""

    pool: str
    kind: str
    planned: int | None
    observed: list[int]
    reason: str | None


class View(TypedDict):
    """cpus: how many CPUs the process is to see; the rest is what was observed without the view."""

    cpus: int
    allowed_cpus_without: int | None
    process_threads_without: int | None
    pools_without: list[Pool]


class Verification(TypedDict):
    """The document; view is null where none is planned; fields may be added."""

    schema: int
    tensorflow: str | None
    distribution: str | None
    planned: dict[str, int]
    observed: dict[str, object]
    view: View | None
    pools: list[Pool]
    openmp: list[Library]
    agrees: bool
    differences: list[Difference]


class Probe(NamedTuple):
    """What a fresh interpreter told: the growth of its threads by step, its libraries, and the log by step."""

    tensorflow: str
    grown: dict[str, int]
    logged: dict[str, int]
    xla_intra_op: int
    process_threads: int
    allowed_cpus: int
    libraries: list[dict[str, object]]


def planned_numbers(environ: dict[str, str]) -> dict[str, int]:
    """What the program gets, exported values that were kept included."""
    names = {
        "intra_op": "TF_NUM_INTRAOP_THREADS",
        "inter_op": "TF_NUM_INTEROP_THREADS",
        "omp": "OMP_NUM_THREADS",
    }
    # A list of OpenMP's has the outermost level first.
    return {number: natural(environ[name].partition(",")[0].strip()) or 0 for number, name in names.items()}


def planned_blas(environ: dict[str, str]) -> dict[str, int]:
    """The same for BLAS libraries, by threadpoolctl's name of their interface."""
    return {kind: natural(environ[variable].strip()) or 0 for kind, variable in BLAS_VARIABLES.items()}


def planned_of(pool: str, planned: dict[str, int]) -> int:
    """The planned number of a sized pool; that of every inter-op pool is the same."""
    return planned[pool.removeprefix("session_")]


def make_fresh(planned: dict[str, int], blas: dict[str, int], probe: Probe, build: Build | None) -> Verification:
    """The document of a fresh interpreter."""
    observed = {pool: Observed(log=probe.logged.get(pool), threads=probe.grown.get(pool)) for pool in SIZED_POOLS}
    differences = [difference for pool in SIZED_POOLS for difference in _compare(pool, planned, observed[pool])]
    openmp = [
        Library(library=str(row["library"]), threads=int(str(row["threads"])))
        for row in probe.libraries
        if row["api"] == "openmp"
    ]
    for library in openmp:
        if library["threads"] != planned["omp"]:
            reason = "it was sized before OMP_NUM_THREADS, or obeys another variable"
            differences.append(
                _difference(library["library"], "not_as_planned", planned["omp"], [library["threads"]], reason)
            )
    blas_pools = []
    for row in probe.libraries:
        if row["api"] != "blas":
            continue
        pool, wanted = _blas_pool(row), blas.get(str(row["kind"]))
        blas_pools.append(pool)
        # Fewer are no fault: OpenBLAS makes no more than it sees CPUs, and than it was built for.
        if wanted is not None and pool["threads"] > wanted:
            differences.append(_difference(pool["name"], "not_as_planned", wanted, [pool["threads"]], None))
    return Verification(
        schema=1,
        tensorflow=probe.tensorflow,
        distribution=build.distribution if build else None,
        planned=planned,
        observed={**observed, "allowed_cpus": probe.allowed_cpus, "process_threads": probe.process_threads},
        view=None,
        pools=[*_unsized_pools(probe), *blas_pools],
        openmp=openmp,
        agrees=not differences,
        differences=differences,
    )


def make_of_script(
    planned: dict[str, int], pools: tuple[LoggedPool, ...], process_threads: int, allowed_cpus: int, build: Build | None
) -> Verification:
    """The document of a user's script, of which only the log is known; no line in it is no agreement."""
    intra_op = [pool.threads for pool in pools if pool.name == "intra_op"][:1]
    inter_op = [pool.threads for pool in pools if pool.name == "inter_op"]
    differences = [
        _difference(name, "not_as_planned", planned[name], sorted(others), SCRIPT_SETS_IT)
        for name, sizes in (("intra_op", intra_op), ("inter_op", inter_op))
        if (others := set(sizes) - {planned[name]})
    ]
    if not pools:
        differences.append(_difference("process", "not_observed", None, [], NOT_OBSERVED))
    return Verification(
        schema=1,
        tensorflow=build.version if build else None,
        distribution=build.distribution if build else None,
        planned=planned,
        observed={
            "intra_op": Observed(log=intra_op[0] if intra_op else None, threads=None),
            "inter_op": Observed(log=inter_op[0] if inter_op else None, threads=None),
            "session_inter_op": Observed(log=None, threads=None),
            "inter_op_pools": inter_op,
            "allowed_cpus": allowed_cpus,
            "process_threads": process_threads,
        },
        view=None,
        pools=[],
        openmp=[],
        agrees=not differences,
        differences=differences,
    )


def with_view(verification: Verification, cpus: int, without: Verification) -> Verification:
    """The document of a fresh interpreter that was to see so many CPUs, beside the one without the view."""
    allowed, seen = without["observed"]["allowed_cpus"], verification["observed"]["allowed_cpus"]
    view = View(
        cpus=cpus,
        allowed_cpus_without=_count(allowed),
        process_threads_without=_count(without["observed"]["process_threads"]),
        pools_without=[*without["pools"], *map(openmp_pool, without["openmp"])],
    )
    # A mask may have become smaller than the view since it was planned.
    wanted = min(cpus, _count(allowed))
    differences = verification["differences"]
    if seen != wanted:
        differences = [*differences, _difference("view", "not_as_planned", wanted, [_count(seen)], VIEW_NOT_LOADED)]
    return {**verification, "view": view, "agrees": not differences, "differences": differences}


def with_view_of_script(verification: Verification, cpus: int, *, is_loaded: bool) -> Verification:
    """The document of a script that was to see so many CPUs; it runs once, so there is nothing beside it.

    is_loaded: whether the library was seen in the process, of which nothing more is known.
    """
    view = View(cpus=cpus, allowed_cpus_without=None, process_threads_without=None, pools_without=[])
    differences = verification["differences"]
    if not is_loaded:
        differences = [*differences, _difference("view", "not_as_planned", cpus, [], VIEW_NOT_LOADED)]
    return {**verification, "view": view, "agrees": not differences, "differences": differences}


def with_timeout(verification: Verification, seconds: float) -> Verification:
    """The document of a script that was ended because it took too long."""
    reason = f"the script did not end within {seconds:g} s"
    if verification["observed"]["inter_op_pools"]:
        threads = verification["planned"]["inter_op"]
        reason += (
            f"; tf.py_function and tf.function inside one another can wait for ever for one of {threads} inter-op "
            f"thread{'' if threads == 1 else 's'} (docs/threads.md)"
        )
    difference = _difference("process", "timeout", None, [], reason)
    return {**verification, "agrees": False, "differences": [*verification["differences"], difference]}


def _unsized_pools(probe: Probe) -> list[Pool]:
    """The pools of which TF_NUM_* knows nothing.

    Two iterators differ only in their private pool, which is of one thread in the first. The first jit_compile makes
    XLA's pools; by the names of their threads only XLAEigen can be told, the others are counted together.
    """
    grown = probe.grown
    tf_data = grown["iterator"] - grown["iterator_of_one"] + 1
    pools = [Pool(name="tf.data", threads=tf_data, sized_by="CPUs the process sees, for every iterator")]
    if probe.xla_intra_op:
        pools.append(Pool(name="XLAEigen", threads=probe.xla_intra_op, sized_by="intra-op"))
    rest = grown["jit_compile"] - probe.xla_intra_op
    sized_by = (
        f"CPUs the process sees (host executor, code generation), {ASYNC_COMPILER_THREADS} fixed (async compiler)"
    )
    pools.append(Pool(name="XLA", threads=rest, sized_by=sized_by))
    return pools


def _blas_pool(row: dict[str, object]) -> Pool:
    variable = BLAS_VARIABLES.get(str(row["kind"]))
    sized_by = f"{variable}, else OMP_NUM_THREADS" if variable else "OMP_NUM_THREADS"
    return Pool(name=str(row["library"]), threads=int(str(row["threads"])), sized_by=sized_by)


def openmp_pool(library: Library) -> Pool:
    """A loaded OpenMP runtime as a row beside the other pools."""
    return Pool(name=library["library"], threads=library["threads"], sized_by="OMP_NUM_THREADS")


def _compare(pool: str, planned: dict[str, int], observed: Observed) -> list[Difference]:
    """The observations must agree with each other and with the plan."""
    wanted = planned_of(pool, planned)
    log, threads = observed["log"], observed["threads"]
    differences = []
    if log != threads:
        reason = f"TensorFlow's log says {log}, its threads are {threads}"
        differences.append(
            _difference(pool, "observations_disagree", None, [n for n in (log, threads) if n is not None], reason)
        )
    if threads is not None and threads != wanted:
        differences.append(_difference(pool, "not_as_planned", wanted, [threads], None))
    return differences


def _count(observed: object) -> int:
    return observed if isinstance(observed, int) else 0


def _difference(pool: str, kind: str, planned: int | None, observed: list[int], reason: str | None) -> Difference:
    return Difference(pool=pool, kind=kind, planned=planned, observed=observed, reason=reason)
