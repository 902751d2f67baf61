"""The way from the facts to the environment, which all commands share; they differ only in what they do with it."""

from __future__ import annotations

from tflaunch._namedtuple import NamedTuple
from tflaunch.cgroup import read_quota
from tflaunch.environment import Change, make_environment, make_mark
from tflaunch.errors import TflaunchError
from tflaunch.files import Files, Problem
from tflaunch.machine import Machine, read_machine
from tflaunch.options import Options
from tflaunch.policy import Limit, Plan, make_limit, make_plan
from tflaunch.topology import read_cores
from tflaunch.view import View, make_view, make_view_environment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from tflaunch.binding import Binding


class Decision(NamedTuple):
    """Everything that was found and decided; problems with files are told by `Files`.

    mark: tells a tflaunch inside which values were computed. binding: what the program is bound to, None where that was
    not asked for.
    """

    machine: Machine
    limit: Limit
    plan: Plan
    view: View
    sizes: tuple[Change, ...]
    view_changes: tuple[Change, ...]
    mark: tuple[Change, ...]
    problems: tuple[Problem, ...]
    binding: Binding | None = None

    @property
    def seen_cpus(self) -> int:
        """How many CPUs the affinity mask has that the program is told."""
        bound = self.binding.cpus if self.binding else None
        return self.view.cpus or len(bound or self.machine.allowed)

    @property
    def changes(self) -> tuple[Change, ...]:
        """What is done with each variable of the program."""
        return (*self.shown, *self.mark)

    @property
    def shown(self) -> tuple[Change, ...]:
        """Those that people read about: the sizes of pools and the view. The mark repeats their numbers."""
        return (*self.sizes, *self.view_changes)


def check_strict(files: Files, options: Options) -> None:
    """TflaunchError with --strict when a file could not be used."""
    if options.strict and files.problems():
        message = "; ".join(problem.message for problem in files.problems())
        raise TflaunchError(f"{message} ({options.origin('strict')})", "without --strict this is a warning")


def decide(files: Files, options: Options, environ: Mapping[str, str]) -> Decision:
    """Facts, limit, plan, binding, view and environment.

    TflaunchError with --strict when a file could not be used, and where --bind cores must not be obeyed.
    """
    machine = read_machine(files)
    quota = read_quota(files)
    check_strict(files, options)
    limit, limit_problems = make_limit(machine, quota, options)
    plan, plan_problems = make_plan(machine, limit, options)
    binding = None
    bound = machine
    if options.bind == "cores":
        from tflaunch.binding import make_binding  # only a start that asks for it pays for it

        binding = make_binding(files, machine, limit, plan, options, environ)
        if binding.cpus:
            # These are the allowed CPUs then. Where siblings were taken, to stay on a NUMA node, they have fewer cores.
            bound = machine._replace(allowed=binding.cpus, cores=read_cores(files, binding.cpus))
            plan, plan_problems = make_plan(bound, limit, options)
        check_strict(files, options)
    view, view_problems = make_view(bound, plan, options, environ)
    if bound is not machine and view.cpus is None and options.view == "auto":
        view = view._replace(reason=f"the program is bound; {view.reason}")
    sizes, size_problems = make_environment(plan, environ, options)
    view_changes = make_view_environment(view, environ, options)
    mark = make_mark(plan, sizes, environ)
    problems = (*limit_problems, *plan_problems, *size_problems, *view_problems)
    return Decision(machine, limit, plan, view, sizes, view_changes, mark, problems, binding)
