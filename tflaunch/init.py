"""`run --init`: tflaunch stays as the parent of the program and does what the first process of a container has to do.

The program runs as a child, in a process group of its own, which has the terminal where there is one. Signals are
passed on to it, orphans that come to this process are reaped, and its status is returned. What still runs then is left
to the kernel, which ends every process of a container with the first one.

Sources: signal(7), wait(2), pid_namespaces(7), PR_SET_CHILD_SUBREAPER in prctl(2), tcsetpgrp(3), credentials(7).
"""

from __future__ import annotations

import os
import signal

from tflaunch._namedtuple import NamedTuple

# These tell of a fault in this process itself, and SIGTTIN and SIGTTOU of its own place at the terminal.
OWN = {
    getattr(signal, name)
    for name in ("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGTRAP", "SIGABRT", "SIGSYS", "SIGTTIN", "SIGTTOU")
}
TAKEN = signal.valid_signals() - OWN - {signal.SIGKILL, signal.SIGSTOP}
PR_SET_CHILD_SUBREAPER = 36


class Child(NamedTuple):
    """The program's process, and the controlling terminal of both (a file descriptor)."""

    process: int
    terminal: int | None


def fork() -> Child | None:
    """The child in the parent, which goes on with `wait`; None in the child, which goes on with the exec."""
    _become_subreaper()
    terminal = _open_terminal()
    own_group = os.getpgrp()
    # Blocked before there is a child: from now on a signal waits until `wait` takes it. A background process that gives
    # the terminal away is stopped by SIGTTOU unless that is blocked.
    callers_mask = signal.pthread_sigmask(signal.SIG_BLOCK, TAKEN | {signal.SIGTTIN, signal.SIGTTOU})
    # A handler: where SIGCHLD is ignored the kernel throws away the status of every child, and outside of Linux it does
    # not keep one that has the default reaction for sigwait.
    callers_reaction = signal.signal(signal.SIGCHLD, lambda *_: None)
    process = 0
    try:
        process = os.fork()
        if process == 0:
            os.setpgid(0, 0)
            _pass_terminal(terminal, own_group, os.getpid())
    finally:
        if process == 0:  # also where the fork failed
            signal.signal(signal.SIGCHLD, callers_reaction)
            signal.pthread_sigmask(signal.SIG_SETMASK, callers_mask)
    return Child(process, terminal) if process else None


def wait(child: Child) -> int:
    """Pass on signals and reap until the child has ended; its exit status, or 128 + n where signal n ended it."""
    while True:
        number = signal.sigwait(TAKEN)
        if number == signal.SIGCHLD:
            status = _reap(child)
            if status is not None:
                _pass_terminal(child.terminal, child.process, os.getpgrp())
                return status
            continue
        try:
            if number == signal.SIGCONT:  # `fg` and `bg` of a shell: after ^Z all of the group has stopped
                _pass_terminal(child.terminal, os.getpgrp(), child.process)
                os.killpg(child.process, number)
            else:
                os.kill(child.process, number)
        except OSError:  # a program that has become another user's cannot be signalled
            pass


def _reap(child: Child) -> int | None:
    """Take the status of every process that has ended; that of the child as in a shell, None while it runs."""
    status = None
    while True:
        try:
            process, wait_status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
        except ChildProcessError:
            return status
        if process == 0:
            return status
        if process != child.process:
            continue
        if os.WIFSTOPPED(wait_status):
            _stop_too(child, os.WSTOPSIG(wait_status))
        else:
            code = os.waitstatus_to_exitcode(wait_status)
            status = code if code >= 0 else 128 - code


def _stop_too(child: Child, number: int) -> None:
    """After ^Z the shell gets the terminal, and sees that its job has stopped; without a shell ^Z does nothing."""
    if child.terminal is None:
        return
    if os.getsid(0) != os.getpid():
        _pass_terminal(child.terminal, child.process, os.getpgrp())
        os.kill(0, signal.SIGSTOP)
    elif number == signal.SIGTSTP:
        os.killpg(child.process, signal.SIGCONT)


def _open_terminal() -> int | None:
    try:
        return os.open("/dev/tty", os.O_RDWR)
    except OSError:
        return None


def _pass_terminal(terminal: int | None, giver: int, taker: int) -> None:
    """Put the taker's process group into the foreground, where the giver's was; a background job stays one."""
    try:
        if terminal is not None and os.tcgetpgrp(terminal) == giver:
            os.tcsetpgrp(terminal, taker)
    except OSError:  # hung up
        pass


def _become_subreaper() -> None:
    """Orphans of the program come here where this is not process 1 either; not where the kernel is no Linux."""
    try:
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    except (ImportError, OSError, AttributeError):
        pass
