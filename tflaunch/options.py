"""The options, each defined once: the command line, TFLAUNCH_* and the Python API all read this table.

A value is parsed by the same function wherever it comes from. On the command line typer splits the arguments and
prints the help (cli/), from this table too.
"""

from __future__ import annotations

from tflaunch._namedtuple import NamedTuple
from tflaunch.cpus import Cpus, parse_cpus
from tflaunch.errors import UsageError
from tflaunch.text import natural, printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# More threads than this for one pool are a mistake, not a wish.
MAX_THREADS = 1024

# A longer text is cut where it is repeated to people.
MAX_SHOWN = 100

YES = ("1", "true", "yes", "on")
NO = ("0", "false", "no", "off")


class Options(NamedTuple):
    """What the user asked for; None and the defaults leave it to the plan.

    origins: how the user said it ("--cpus 2", "TFLAUNCH_CPUS=2"), for the reasons.
    """

    cpus: Cpus | None = None
    intra_op: int | None = None
    inter_op: int | None = None
    omp: int | None = None
    mode: str = "throughput"
    rounding: str = "auto"
    override_env: bool = False
    view: str = "auto"
    bind: str = "none"
    bind_anyway: bool = False
    init: bool = False
    strict: bool = False
    dry_run: bool = False
    verbose: bool = False
    quiet: bool = False
    origins: tuple[tuple[str, str], ...] = ()

    def origin(self, name: str) -> str | None:
        """How the user gave the option, or None where it was not given."""
        return dict(self.origins).get(name)


class Option(NamedTuple):
    """One row of the table. `parse` raises ValueError, whose text says what is accepted. No metavar: a switch."""

    name: str
    parse: Callable[[str], object]
    help: str
    metavar: str | None = None
    short: str | None = None

    @property
    def flag(self) -> str:
        """Its name on the command line."""
        return "--" + self.name.replace("_", "-")

    @property
    def is_switch(self) -> bool:
        """Whether it is said without a value."""
        return self.metavar is None

    @property
    def variable(self) -> str:
        """Its name in the environment."""
        return "TFLAUNCH_" + self.name.upper()


def _parse_cpus(text: str) -> Cpus:
    try:
        return parse_cpus(text)
    except ValueError:
        raise ValueError("a number of CPUs above zero, such as 2, 1.5 or 1500m") from None


def _parse_threads(text: str) -> int:
    threads = natural(text.strip())
    if threads is None or not 1 <= threads <= MAX_THREADS:
        raise ValueError(f"a whole number of threads from 1 to {MAX_THREADS}")
    return threads


def _parse_switch(text: str) -> bool:
    word = text.strip().lower()
    if word not in YES + NO:
        raise ValueError("1 or 0 (also true, yes, on, false, no, off)")
    return word in YES


def _choice(*words: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        word = text.strip().lower()
        if word not in words:
            raise ValueError("one of " + ", ".join(words))
        return word

    return parse


OPTIONS = (
    Option(
        "cpus",
        _parse_cpus,
        "The CPU limit, where the container's is not visible or you know better: 2, 1.5 or 1500m. Never above the "
        "CPUs that the affinity mask allows.",
        "N",
    ),
    Option("intra_op", _parse_threads, "Threads of one TensorFlow operation, instead of the computed number.", "N"),
    Option("inter_op", _parse_threads, "TensorFlow operations run at the same time. 1 hangs some programs.", "N"),
    Option("omp", _parse_threads, "Threads of OpenMP and BLAS libraries (NumPy, scikit-learn).", "N"),
    Option(
        "mode", _choice("throughput", "latency"), "throughput for training (the default), latency for serving.", "MODE"
    ),
    Option(
        "rounding",
        _choice("auto", "floor", "nearest", "ceil"),
        "How a fractional limit becomes threads: auto (nearest; floor in latency mode), floor, nearest or ceil.",
        "HOW",
    ),
    Option("override_env", _parse_switch, "Replace values that the caller exported, such as OMP_NUM_THREADS."),
    Option(
        "view",
        _choice("auto", "on", "off"),
        "Let the program see only the CPUs of the limit when it asks how many there are: auto (the default: where it "
        "sees more), on or off.",
        "WHEN",
    ),
    Option(
        "bind",
        _choice("none", "cores"),
        "run: bind the program to as many CPUs as the limit has: none (the default), or cores, one CPU of each core, "
        "of one NUMA node where that can be, idle ones first.",
        "WHERE",
    ),
    Option(
        "bind_anyway",
        _parse_switch,
        "With --bind cores: bind under a quota without a cpuset too, where every container of the host would bind to "
        "the same CPUs.",
    ),
    Option(
        "init",
        _parse_switch,
        "run: stay as the parent of the program, pass on signals and reap orphans, as the first process of a container "
        "has to; without it the program takes the place of tflaunch.",
    ),
    Option("strict", _parse_switch, "Fail when a file of the kernel cannot be used, instead of warning."),
    Option("dry_run", _parse_switch, "run: print the environment changes and the command, run nothing."),
    Option("verbose", _parse_switch, "run: print each number with its reason on standard error.", short="-v"),
    Option("quiet", _parse_switch, "run, env: print nothing on standard error.", short="-q"),
)


def parse_options(given: Mapping[str, str], environ: Mapping[str, str], spelling: str = "flag") -> Options:
    """The options from what was given (name to text) and TFLAUNCH_* of the environment; what was given wins.

    An empty variable counts as not set, as a Kubernetes manifest or a compose file leaves it. UsageError for a value
    that cannot be understood, wherever it stands. spelling: how `given` is written for people, "flag" or "keyword".
    """
    values: dict[str, object] = {}
    origins: list[tuple[str, str]] = []
    if "verbose" in given or "quiet" in given:  # either flag decides over both variables
        environ = {name: value for name, value in environ.items() if name not in ("TFLAUNCH_VERBOSE", "TFLAUNCH_QUIET")}
    for option in OPTIONS:
        if option.name in given:
            text = given[option.name]
            said = f"{option.name}={text}" if spelling == "keyword" else option.flag
            if spelling == "flag" and not option.is_switch:
                said += f" {text}" if text.strip() else f" '{text}'"
        elif environ.get(option.variable):
            text = environ[option.variable]
            said = f"{option.variable}={text}"
        else:
            continue
        said = printable(said if len(said) <= MAX_SHOWN else said[:MAX_SHOWN] + "…")
        try:
            values[option.name] = option.parse(text)
        except ValueError as error:
            raise UsageError(f"{said} cannot be used", f"give {error}") from None
        origins.append((option.name, said))
    if values.get("verbose") and values.get("quiet"):
        raise UsageError("verbose and quiet exclude each other", "give one of -v and -q, or neither")
    return Options(**values, origins=tuple(origins))  # type: ignore[arg-type]  # the table's parsers give these types
