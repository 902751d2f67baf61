"""The plan and the caller's variables to what is done with each variable: pure.

A value that the caller exported stands if it is valid, so that nothing tuned by hand is lost in silence. An option
stands above it, and --override-env above all of them. What an outer tflaunch computed is not tuned by hand: a smaller
number takes its place, as for a worker that gets a part of the container's CPUs.

No variable that binds threads to CPUs is ever set: libgomp binds the main thread when it is loaded, TensorFlow then
sees a mask of one CPU and makes pools of one thread. With --bind cores, which sets the mask of the process itself,
those that the caller exported end for the same reason.
"""

from __future__ import annotations

from tflaunch._namedtuple import NamedTuple
from tflaunch.files import Problem
from tflaunch.options import MAX_THREADS, Options
from tflaunch.policy import Plan
from tflaunch.text import natural, printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

BLANKS = " \t\r\n"

# Which of the exported values tflaunch computed: "TF_NUM_INTRAOP_THREADS=4 OMP_NUM_THREADS=4 ...".
COMPUTED = "TFLAUNCH_COMPUTED"


class Change(NamedTuple):
    """What is done with a variable: action is "set", "keep", "replace" or "unset"; value what the program sees."""

    name: str
    value: str | None
    action: str
    reason: str


class Variable(NamedTuple):
    """A variable that the plan sizes: the plan's field, and which exported values its readers take as meant."""

    name: str
    number: str
    is_valid: Callable[[str], bool]


def is_thread_count(text: str) -> bool:
    """1 to 1024 in digits, blanks around them allowed: what TensorFlow, OpenBLAS and MKL all read as that number.

    TensorFlow takes everything else silently as its default, or aborts (-1); "+4" depends on its release.
    """
    number = natural(text.strip(BLANKS))
    return number is not None and 1 <= number <= MAX_THREADS


def is_thread_list(text: str) -> bool:
    """A count, or one for each nesting level: "4,3,2" (OpenMP 5.2, section 21.1.2)."""
    return all(is_thread_count(part) for part in text.split(","))


def is_blocktime(text: str) -> bool:
    """0 and up, in ms or with a unit, or infinite: what libiomp5 takes."""
    word = text.strip(BLANKS).lower()
    if word == "infinite":
        return True
    number = natural(word[:-2] if word.endswith(("ms", "us")) else word)
    return number is not None and number < 2**31


def is_python_cpu_count(text: str) -> bool:
    """1 to 1024 without a blank behind it, or "default"; Python 3.13 does not even start with anything else."""
    return text == "default" or (is_thread_count(text) and text == text.rstrip())


VARIABLES = (
    Variable("TF_NUM_INTRAOP_THREADS", "intra_op", is_thread_count),
    Variable("TF_NUM_INTEROP_THREADS", "inter_op", is_thread_count),
    Variable("OMP_NUM_THREADS", "omp", is_thread_list),
    Variable("OPENBLAS_NUM_THREADS", "blas", is_thread_count),
    Variable("MKL_NUM_THREADS", "blas", is_thread_count),
    Variable("BLIS_NUM_THREADS", "blas", is_thread_count),
    Variable("VECLIB_MAXIMUM_THREADS", "blas", is_thread_count),
    # NumExpr complains on standard error where the second is above the first, which is 64 unless set.
    Variable("NUMEXPR_MAX_THREADS", "omp", is_thread_count),
    Variable("NUMEXPR_NUM_THREADS", "omp", is_thread_count),
    Variable("NUMBA_NUM_THREADS", "omp", is_thread_count),
    Variable("KMP_BLOCKTIME", "kmp_blocktime", is_blocktime),
    Variable("LOKY_MAX_CPU_COUNT", "python_cpu_count", is_thread_count),
    Variable("PYTHON_CPU_COUNT", "python_cpu_count", is_python_cpu_count),
)

# Each with the words that make it harmless.
BINDING_VARIABLES = {
    "OMP_PROC_BIND": ("false",),
    "OMP_PLACES": (),
    "GOMP_CPU_AFFINITY": (),
    "KMP_AFFINITY": ("none", "disabled"),
}


def make_environment(
    plan: Plan, environ: Mapping[str, str], options: Options
) -> tuple[tuple[Change, ...], tuple[Problem, ...]]:
    """What is done with each variable, and what the user should know of it."""
    changes: list[Change] = []
    problems: list[Problem] = []
    computed = _computed_outside(environ)
    for variable in VARIABLES:
        number = getattr(plan, variable.number)
        planned, exported = str(number.value), environ.get(variable.name)
        if exported is None:
            changes.append(Change(variable.name, planned, "set", number.reason))
        elif exported == planned:
            changes.append(Change(variable.name, exported, "keep", f"exported; the plan agrees: {number.reason}"))
        elif number.is_explicit:
            changes.append(Change(variable.name, planned, "replace", f"{number.reason}; {_was(exported)}"))
        elif options.override_env:
            why = f"{number.reason}; {_was(exported)} ({options.origin('override_env')})"
            changes.append(Change(variable.name, planned, "replace", why))
        elif computed.get(variable.name, 0) > number.value and variable.is_valid(exported):
            why = f"{number.reason}; {_was(exported)}, computed by an outer tflaunch"
            changes.append(Change(variable.name, planned, "replace", why))
        elif variable.is_valid(exported):
            why = f"exported; the plan would say {planned} (--override-env)"
            changes.append(Change(variable.name, exported, "keep", why))
        else:
            changes.append(
                Change(variable.name, planned, "replace", f"{number.reason}; {_was(exported)}, no valid value")
            )
            message = f"{variable.name} {_was(exported)}, which is no valid value; it is now {planned}"
            problems.append(Problem("invalid_value_replaced", message))
    problems += _problems_of_values(changes, plan)
    if options.bind == "cores":
        changes += _without_binding_variables(environ, options)
        return tuple(changes), tuple(problems)
    for name, harmless in BINDING_VARIABLES.items():
        exported = environ.get(name)
        if not exported:
            continue
        if options.override_env:
            changes.append(Change(name, None, "unset", f"{_was(exported)} ({options.origin('override_env')})"))
            continue
        changes.append(Change(name, exported, "keep", "exported; tflaunch sets no binding"))
        words = exported.lower().replace(",", " ").split()
        if not any(word in words for word in harmless):
            problems.append(
                Problem(
                    "binding_variable",
                    f"{name} {_was(exported, 'is')}: binding can leave TensorFlow one CPU; --override-env unsets it",
                )
            )
    return tuple(changes), tuple(problems)


def make_mark(plan: Plan, changes: tuple[Change, ...], environ: Mapping[str, str]) -> tuple[Change, ...]:
    """The variable that tells a tflaunch inside this one which values nobody chose. Without any it is unset."""
    outside = _computed_outside(environ)
    computed = [
        f"{change.name}={change.value}"
        for variable, change in zip(VARIABLES, changes)
        if not getattr(plan, variable.number).is_explicit and (change.action != "keep" or change.name in outside)
    ]
    if not computed and COMPUTED not in environ:
        return ()
    return (change_to(COMPUTED, " ".join(computed), environ, "a tflaunch inside this one may make these smaller"),)


def change_to(name: str, value: str, environ: Mapping[str, str], reason: str) -> Change:
    """What gives a variable the value, whatever it is now; an empty value is none."""
    if not value:
        return Change(name, None, "unset", reason)
    exported = environ.get(name)
    if exported is None:
        return Change(name, value, "set", reason)
    return Change(name, value, "keep" if exported == value else "replace", reason)


def _computed_outside(environ: Mapping[str, str]) -> dict[str, int]:
    """The exported values that are still those that an outer tflaunch computed."""
    entries = (entry.partition("=") for entry in environ.get(COMPUTED, "").split())
    return {
        name: number
        for name, _, value in entries
        if environ.get(name) == value and (number := natural(value)) is not None
    }


def _without_binding_variables(environ: Mapping[str, str], options: Options) -> list[Change]:
    """The changes that leave the mask of --bind cores to all threads; no OpenMP runtime narrows it."""
    why = f"{options.origin('bind')}: binding by OpenMP would leave TensorFlow one CPU of the mask"
    changes = []
    for name in BINDING_VARIABLES:
        exported = environ.get(name)
        value = "false" if name == "OMP_PROC_BIND" else None
        if exported is None:
            if value is not None:
                changes.append(Change(name, value, "set", why))
        elif value is not None and exported.strip(BLANKS).lower() == value:
            changes.append(Change(name, exported, "keep", f"exported; the plan agrees: {why}"))
        else:
            changes.append(Change(name, value, "unset" if value is None else "replace", f"{why}; {_was(exported)}"))
    return changes


def apply_changes(changes: tuple[Change, ...], environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of the program."""
    result = dict(environ)
    for change in changes:
        if change.value is None:
            result.pop(change.name, None)
        else:
            result[change.name] = change.value
    return result


def _problems_of_values(changes: list[Change], plan: Plan) -> list[Problem]:
    """Values that the program gets because the user wants them, and that the user may not want on second thought."""
    problems = []
    cpus = plan.python_cpu_count.value
    is_one_planned = plan.inter_op.value == 1 and not plan.inter_op.is_explicit  # latency mode says why
    for variable, change in zip(VARIABLES, changes):
        # The first of a list is the outermost level, which is the one that all programs have.
        value = natural((change.value or "").partition(",")[0].strip(BLANKS))
        if value is None:
            continue
        if variable.name == "TF_NUM_INTEROP_THREADS" and value == 1 and not is_one_planned:
            message = "TF_NUM_INTEROP_THREADS is 1: programs that nest tf.py_function and tf.function can hang"
            problems.append(Problem("inter_op_one", message))
        is_pool = variable.number in ("intra_op", "omp", "blas")
        if change.action == "keep" and is_pool and value > max(cpus, getattr(plan, variable.number).value):
            message = f"{variable.name}={value} was exported and is kept, for {cpus} CPUs; --override-env replaces it"
            problems.append(Problem("kept_above_limit", message))
    return problems


def _was(exported: str, verb: str = "was") -> str:
    return f"{verb} '{printable(exported)}'" if exported else f"{verb} empty"
