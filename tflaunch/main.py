"""The entry point: the common path without any option goes straight to the exec, everything else through typer.

Errors become two lines on standard error and the exit status of their kind; nothing prints a traceback.
"""

from __future__ import annotations

import os
import sys

from tflaunch.errors import TflaunchError
from tflaunch.text import printable


def main() -> int:
    """The program; returns its exit status where the script does not take its place."""
    try:
        if sys.stdout is not None:
            # A name from a file or an argument may hold what the terminal's encoding cannot write.
            sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # a TextIOWrapper at start
        return _dispatch(sys.argv[1:])
    except TflaunchError as error:
        return _fail(error.what, error.hint, error.exit_status)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of our output has gone (tflaunch explain | head). Nothing is left to flush into the pipe at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
    except Exception as error:
        what = f"a fault in tflaunch: {type(error).__name__}: {error}"
        return _fail(what, "please report it, with the output of tflaunch explain --json", TflaunchError.exit_status)


def _dispatch(arguments: list[str]) -> int:
    if len(arguments) >= 2 and arguments[0] == "run" and not arguments[1].startswith("-"):
        # No option to parse, so no parser: importing typer costs several times the start of an interpreter.
        from tflaunch.launch import Command, run
        from tflaunch.options import parse_options

        return run(Command("script", arguments[1], arguments[2:]), parse_options({}, os.environ))
    from tflaunch.cli import main as cli_main

    return cli_main(arguments)


def _fail(what: str, hint: str, status: int) -> int:
    if sys.stderr is not None:
        try:
            red, plain = ("\033[31m", "\033[0m") if sys.stderr.isatty() and not os.environ.get("NO_COLOR") else ("", "")
            print(
                f"tflaunch: {red}error:{plain} {printable(what)}\nhint: {printable(hint)}", file=sys.stderr, flush=True
            )
        except OSError:
            pass
    return status
