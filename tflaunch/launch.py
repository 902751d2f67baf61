"""The exec: the program takes the place of tflaunch in the same process, with the environment of the plan.

Process id, standard streams, open files, argv, blocked signals and working directory stay as they are, and there is no
parent left that could lose a signal or an exit status. Only with --init tflaunch stays, as the parent (init.py).
"""

from __future__ import annotations

import os
import sys

from tflaunch._namedtuple import NamedTuple
from tflaunch.cpulist import format_cpulist
from tflaunch.decision import Decision, decide
from tflaunch.environment import apply_changes
from tflaunch.errors import CannotRunError, NotFoundError, TflaunchError, UsageError
from tflaunch.files import Files, Problem
from tflaunch.messages import say, say_problems
from tflaunch.options import Options

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

    from tflaunch.init import Child


class Command(NamedTuple):
    """What to start: kind is "script", "module" (python -m) or "program" (no Python)."""

    kind: str
    name: str
    arguments: Sequence[str]

    def argv(self) -> list[str]:
        """The command as the kernel gets it."""
        if self.kind == "program":
            return [self.name, *self.arguments]
        if self.kind == "module":
            return [sys.executable, "-m", self.name, *self.arguments]
        # A script may be named like an option of Python's.
        dashes = ["--"] if self.name.startswith("-") and self.name != "-" else []
        return [sys.executable, *dashes, self.name, *self.arguments]


def run(command: Command, options: Options) -> int:
    """Start the command in the place of this process; returns only for --dry-run, and the program's status for --init.

    A fault of tflaunch itself never keeps the program from starting: it starts with the caller's environment.
    Raises NotFoundError, CannotRunError, and TflaunchError with --strict.
    """
    if options.init and not hasattr(os, "fork"):
        raise UsageError(f"{options.origin('init')} cannot be used: this system has no fork", "leave it out")
    check(command)
    files = Files()
    decision = None
    try:
        decision = decide(files, options, os.environ)
        if decision.binding is not None and decision.binding.cpus and not options.dry_run:
            decision = _bind(decision, decision.binding.cpus, options)
    except TflaunchError:
        raise
    except Exception as error:
        if options.strict or options.dry_run:
            raise
        if not options.quiet:
            say(f"warning: no setting was made, a fault in tflaunch: {type(error).__name__}: {error}")
    environ = dict(os.environ) if decision is None else apply_changes(decision.changes, os.environ)
    if decision is not None:
        if not options.quiet:
            _report(decision, files, command, options)
        if options.dry_run:
            from tflaunch.render import dry_run

            print(dry_run(decision, command.argv()))
            return 0
    child = _fork(options) if options.init else None
    if child is not None:
        from tflaunch.init import wait

        return wait(child)
    return _exec(command, environ)


def summary(decision: Decision) -> str:
    """The one line on start: the limit, where it comes from, and the values the program gets."""
    values = {
        change.name: f"{change.value}{' (exported)' if change.action == 'keep' else ''}" for change in decision.shown
    }
    limit, view = decision.limit, decision.view
    bound = frozenset() if decision.binding is None else decision.binding.cpus
    allowed = len(bound or decision.machine.allowed)
    seen = "" if view.cpus is None or view.cpus >= allowed else f", sees {view.cpus} of {allowed} CPUs"
    if decision.binding is not None:
        seen += f", bound to {format_cpulist(bound)}" if bound else ", nothing to bind"
    return (
        f"{limit.cpus} CPU{'' if str(limit.cpus) == '1' else 's'} ({limit.reason}): "
        f"intra-op {values['TF_NUM_INTRAOP_THREADS']}, inter-op {values['TF_NUM_INTEROP_THREADS']}, "
        f"OMP {values['OMP_NUM_THREADS']}{seen}"
    )


def _bind(decision: Decision, cpus: frozenset[int], options: Options) -> Decision:
    """Bind this process; returns the decision that holds then: that without a binding, where the kernel refuses it."""
    try:
        from tflaunch.binding import bind

        failure = bind(cpus)
    except Exception as error:
        failure = f"a fault in tflaunch: {type(error).__name__}: {error}"
    if failure is None:
        return decision
    message = f"not bound to {format_cpulist(cpus)}: {failure}"
    if options.strict:
        raise TflaunchError(f"{message} ({options.origin('strict')})", "without --strict this is a warning")
    unbound = decide(Files(), options._replace(bind="none"), os.environ)
    return unbound._replace(problems=(*unbound.problems, Problem("not_bound", message)))


def _fork(options: Options) -> Child | None:
    """The child in the parent; None in the child, and where there cannot be one: the exec comes next there."""
    try:
        from tflaunch.init import fork

        return fork()
    except Exception as error:
        message = f"tflaunch cannot stay as the parent: {type(error).__name__}: {error}"
        if options.strict:
            raise TflaunchError(
                f"{message} ({options.origin('strict')})", "without --strict this is a warning"
            ) from None
        if not options.quiet:
            say(f"warning: {message}")
        return None


def _report(decision: Decision, files: Files, command: Command, options: Options) -> None:
    line = summary(decision)
    if os.getpid() == 1 and not options.init:  # the kernel has no default reactions for it: pid_namespaces(7)
        kind = "program" if command.kind == "program" else "Python"
        line += f"; as process 1 a {kind} without a SIGTERM handler ignores SIGTERM (hint: --init)"
    say(line)
    if options.verbose:
        if decision.binding is not None:
            bound, reason = decision.binding
            say(f"bind {format_cpulist(bound)}: {reason}" if bound else reason)
        for change in decision.shown:
            setting = change.name if change.value is None else f"{change.name}={change.value}"
            say(f"{change.action} {setting}: {change.reason}")
    say_problems((*files.problems(), *decision.problems))


def check(command: Command) -> None:
    """Find what can be known to fail before anything is started; a module is left to Python, which imports it.

    NotFoundError, CannotRunError.
    """
    if not sys.executable:
        raise TflaunchError("the Python interpreter does not know its own path", "start tflaunch with a full path")
    if command.kind != "script" or command.name == "-":
        return
    name = command.name
    if not os.path.exists(command.name):
        raise NotFoundError(f"there is no script {name!r}", "give the path of a Python file, or -m MODULE")
    if os.path.isdir(command.name) and not os.path.exists(os.path.join(command.name, "__main__.py")):
        raise CannotRunError(f"{name!r} is a directory without a __main__.py", "give a Python file, or -m MODULE")
    if not os.access(command.name, os.R_OK):
        raise CannotRunError(f"{name!r} cannot be read", "check its permissions (ls -l)")


def _exec(command: Command, environ: dict[str, str]) -> NoReturn:
    argv = command.argv()
    if os.name == "nt":  # exec there starts a second process and lets the shell go on at once
        import subprocess

        sys.exit(subprocess.run(argv, env=environ, check=False).returncode)
    try:
        if command.kind == "program":
            _restore_signals()
            os.execvpe(argv[0], argv, _without_coerced_locale(environ))
        os.execve(argv[0], argv, environ)
    except FileNotFoundError:
        if _is_found(argv[0], environ):
            what = f"{argv[0]!r} cannot be run: the interpreter in its first line was not found"
            raise CannotRunError(what, "correct the line, or install the interpreter") from None
        raise NotFoundError(f"{argv[0]!r} was not found", "check the name and PATH") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        hint = "check that it is an executable of this machine (ls -l, file), and the length of its arguments"
        raise CannotRunError(f"{argv[0]!r} cannot be run: {reason}", hint) from None


def _is_found(name: str, environ: dict[str, str]) -> bool:
    directories = [""] if "/" in name else os.get_exec_path(environ)
    return any(os.path.exists(os.path.join(directory, name)) for directory in directories)


def _without_coerced_locale(environ: dict[str, str]) -> dict[str, str]:
    """The environment without the LC_CTYPE that Python exports for itself when it is started in the C locale (PEP 538).

    What the caller exported still stands in /proc/self/environ. A Python program does the same again.
    """
    first = Files().read("/proc/self/environ")
    if first is None:
        return environ
    exported = dict(entry.split("=", 1) for entry in first.split("\0") if "=" in entry)
    others = {name: value for name, value in environ.items() if name != "LC_CTYPE"}
    return {**others, "LC_CTYPE": exported["LC_CTYPE"]} if "LC_CTYPE" in exported else others


def _restore_signals() -> None:
    """Give back what Python changed for itself when it started: it ignores SIGPIPE and SIGXFSZ, and exec keeps that.

    A Python program changes them again, so only other programs need this. Whether the caller had ignored them cannot be
    known any more.
    """
    import signal

    for name in ("SIGPIPE", "SIGXFSZ"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_DFL)
