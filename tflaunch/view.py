"""The view: how many CPUs the program sees when it asks, and the preloaded library (view.c) that answers.

Pools that no variable sizes (tf.data, XLA, JAX, multiprocessing) ask the C library how many CPUs there are. The library
of the view answers with the number of the plan. Nothing is pinned: only answers change.

LD_PRELOAD             the library, before what the caller preloads            ld.so(8)
TFLAUNCH_VIEW_CPUS     how many CPUs are seen
TFLAUNCH_VIEW_FIRST    one CPU of each core, seen before their siblings; only where cores have several CPUs
"""

from __future__ import annotations

import os
import sys

from tflaunch._namedtuple import NamedTuple
from tflaunch.cpulist import format_cpulist
from tflaunch.environment import Change, change_to
from tflaunch.errors import TflaunchError
from tflaunch.files import Problem
from tflaunch.machine import Machine
from tflaunch.options import Options
from tflaunch.policy import Plan
from tflaunch.text import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

LIBRARY = "libtflaunch_view.so"

# Their runtime must stand first among the preloaded libraries, or their programs end at the start.
SANITIZERS = ("libasan.so", "libtsan.so", "liblsan.so", "libubsan.so", "libhwasan.so", "libclang_rt.")


class Library(NamedTuple):
    """The library of the view: its path, or why it cannot be used."""

    path: str | None
    problem: str | None = None


class View(NamedTuple):
    """cpus: how many CPUs the program sees, None for all; first: those that are seen before others."""

    cpus: int | None
    first: frozenset[int]
    library: str | None
    reason: str


def find_library(directory: str | None = None) -> Library:
    """The library beside the files of tflaunch, or beside the archive that holds them."""
    if not sys.platform.startswith("linux"):
        return Library(None, "it needs the dynamic loader of Linux")
    directory = directory or os.path.dirname(os.path.abspath(__file__))
    while not os.path.isdir(directory):  # inside a zip file
        directory = os.path.dirname(directory)
    path = os.path.join(directory, LIBRARY)
    if not os.path.isfile(path):
        return Library(None, f"there is no {LIBRARY} beside tflaunch: installed without a C compiler, or not copied")
    if any(character in path for character in " :$"):
        return Library(None, f"LD_PRELOAD cannot name a path with a blank, colon or dollar sign: {path}")
    try:
        if not os.access(path, os.R_OK):
            return Library(None, f"{path} cannot be read")
        if os.statvfs(path).f_flag & os.ST_NOEXEC:
            return Library(None, f"{path} is on a file system mounted noexec")
    except OSError as error:
        return Library(None, f"{path}: {error.strerror}")
    return Library(path)


def make_view(
    machine: Machine, plan: Plan, options: Options, environ: Mapping[str, str], library: Library | None = None
) -> tuple[View, tuple[Problem, ...]]:
    """What the program sees: the number of CPUs of the plan, where its affinity mask has more. `library` for tests.

    TflaunchError with --strict where the view was asked for and is not available.
    """
    allowed, wanted = len(machine.allowed), plan.python_cpu_count.value
    if options.view == "off":
        return View(None, frozenset(), None, options.origin("view") or "not asked for"), ()
    if options.view == "auto" and allowed <= wanted:
        reason = "the affinity mask has no more CPUs than the plan"
        if is_preloaded(environ) and environ.get("TFLAUNCH_VIEW_CPUS"):
            outer = printable(environ["TFLAUNCH_VIEW_CPUS"])
            reason = f"that of an outer tflaunch stands (TFLAUNCH_VIEW_CPUS={outer})"
        elif len(machine.online) > wanted:
            reason += f"; the number of CPUs of the host, {len(machine.online)}, stays visible (--view on hides it)"
        return View(None, frozenset(), None, reason), ()
    library = library or find_library()
    if library.path is None:
        message = f"the view is not available: {library.problem}"
        if options.view == "on" and options.strict:
            raise TflaunchError(f"{message} ({options.origin('strict')})", "without --strict this is a warning")
        if allowed > wanted:
            message += f"; tf.data, XLA and others make pools for {allowed} CPUs (--view off ends this warning)"
        return View(None, frozenset(), None, f"not available: {library.problem}"), (
            Problem("view_unavailable", message),
        )
    has_siblings = any(len(core) > 1 for core in machine.cores)
    first = frozenset(min(core) for core in machine.cores) if has_siblings else frozenset()
    return View(wanted, first, library.path, f"of {allowed} allowed; {plan.python_cpu_count.reason}"), ()


def is_preloaded(environ: Mapping[str, str]) -> bool:
    """Whether the library is among what is preloaded."""
    return any(os.path.basename(entry) == LIBRARY for entry in _preloaded(environ))


def make_view_environment(view: View, environ: Mapping[str, str], options: Options) -> tuple[Change, ...]:
    """What is done with the variables of the view; with --view off that of a tflaunch outside of this one ends too."""
    others = [entry for entry in _preloaded(environ) if os.path.basename(entry) != LIBRARY]
    if view.cpus is None or view.library is None:
        if options.view != "off" or not is_preloaded(environ):
            return ()
        without = {"LD_PRELOAD": ":".join(others), "TFLAUNCH_VIEW_CPUS": "", "TFLAUNCH_VIEW_FIRST": ""}
        why = "--view off ends the view of an outer tflaunch"
        return tuple(change_to(name, value, environ, why) for name, value in without.items() if name in environ)
    position = 0
    while position < len(others) and os.path.basename(others[position]).startswith(SANITIZERS):
        position += 1
    others.insert(position, view.library)
    why = f"the program sees {view.cpus} CPU{'' if view.cpus == 1 else 's'}"
    changes = [
        change_to("LD_PRELOAD", ":".join(others), environ, f"{why} when it asks"),
        change_to("TFLAUNCH_VIEW_CPUS", str(view.cpus), environ, f"{why} {view.reason}"),
    ]
    if view.first or "TFLAUNCH_VIEW_FIRST" in environ:
        first = format_cpulist(view.first)
        changes.append(change_to("TFLAUNCH_VIEW_FIRST", first, environ, "one CPU of each core before their siblings"))
    return tuple(changes)


def _preloaded(environ: Mapping[str, str]) -> list[str]:
    """What is preloaded, in its order; blanks and colons part it (ld.so(8))."""
    return environ.get("LD_PRELOAD", "").replace(":", " ").split()
