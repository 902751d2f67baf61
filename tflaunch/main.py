"""The entry point: the common path without any option goes straight to the exec, everything else through typer.

Errors become two lines on standard error and the exit status of their kind; nothing prints a traceback.
"""

from __future__ import annotations

import errno
import gc
import os
import sys

from tflaunch.errors import TflaunchError
from tflaunch.messages import say_error

# What writing to a pipe or a file can give, and reading the kernel's files cannot.
OUTPUT_ERRORS = (errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def main() -> int:
    """The program; returns its exit status where the script does not take its place."""
    try:
        if sys.stdout is not None:
            # A name from a file or an argument may hold what the terminal's encoding cannot write.
            sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # a TextIOWrapper at start
        status = _dispatch(sys.argv[1:])
        if sys.stdout is not None:
            sys.stdout.flush()
        return status
    except TflaunchError as error:
        say_error(error.what, error.hint)
        return error.exit_status
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        if isinstance(error, OSError) and error.errno in OUTPUT_ERRORS:
            # Nothing may be left that Python would try to write again at its end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            if error.errno == errno.EPIPE:  # tflaunch explain | head: the reader has what it wanted
                return 1
            say_error(f"the output cannot be written: {error.strerror}", "check where standard output goes")
            return TflaunchError.exit_status
        what = f"a fault in tflaunch: {type(error).__name__}: {error}"
        say_error(what, "please report it, with the output of tflaunch explain --json")
        return TflaunchError.exit_status


def _dispatch(arguments: list[str]) -> int:
    if len(arguments) >= 2 and arguments[0] == "run" and not arguments[1].startswith("-"):
        # No option to parse, so no parser: importing typer costs several times the start of an interpreter.
        from tflaunch.launch import Command, run
        from tflaunch.options import parse_options

        return run(Command("script", arguments[1], arguments[2:]), parse_options({}, os.environ))
    # Nothing lives long here, and collecting garbage while typer is imported costs a twentieth of the start.
    gc.disable()
    from tflaunch.cli import main as cli_main

    return cli_main(arguments)
