"""The way from the facts to the environment, which all commands share; they differ only in what they do with it."""

from __future__ import annotations

from tflaunch._namedtuple import NamedTuple
from tflaunch.cgroup import read_quota
from tflaunch.environment import Change, make_environment
from tflaunch.errors import TflaunchError
from tflaunch.files import Files, Problem
from tflaunch.machine import Machine, read_machine
from tflaunch.options import Options
from tflaunch.policy import Limit, Plan, make_limit, make_plan
from tflaunch.view import View, make_view, make_view_environment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


class Decision(NamedTuple):
    """Everything that was found and decided; problems with files are told by `Files`."""

    machine: Machine
    limit: Limit
    plan: Plan
    view: View
    sizes: tuple[Change, ...]
    view_changes: tuple[Change, ...]
    problems: tuple[Problem, ...]

    @property
    def changes(self) -> tuple[Change, ...]:
        """What is done with each variable: those that size pools, and those of the view."""
        return (*self.sizes, *self.view_changes)


def check_strict(files: Files, options: Options) -> None:
    """TflaunchError with --strict when a file could not be used."""
    if options.strict and files.problems():
        message = "; ".join(problem.message for problem in files.problems())
        raise TflaunchError(f"{message} ({options.origin('strict')})", "without --strict this is a warning")


def decide(files: Files, options: Options, environ: Mapping[str, str]) -> Decision:
    """Facts, limit, plan, view and environment. TflaunchError with --strict when a file could not be used."""
    machine = read_machine(files)
    quota = read_quota(files)
    check_strict(files, options)
    limit, limit_problems = make_limit(machine, quota, options)
    plan, plan_problems = make_plan(machine, limit, options)
    view, view_problems = make_view(machine, plan, options)
    sizes, size_problems = make_environment(plan, environ, options)
    view_changes = make_view_environment(view, environ, options)
    problems = (*limit_problems, *plan_problems, *size_problems, *view_problems)
    return Decision(machine, limit, plan, view, sizes, view_changes, problems)
