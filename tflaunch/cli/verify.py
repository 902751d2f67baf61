"""`tflaunch verify`: what TensorFlow really did, against what was planned."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from tflaunch.decision import decide
from tflaunch.errors import TflaunchError, UsageError
from tflaunch.files import Files
from tflaunch.launch import Command
from tflaunch.messages import say_problems
from tflaunch.options import Options


def verify(
    options: Options,
    script: Annotated[
        list[str] | None, typer.Argument(metavar="[SCRIPT [ARGS]...]", help="Observe this script instead, to its end.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the document for programs.")] = False,
    timeout: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="End a script that takes longer, as a hang.")
    ] = None,
) -> int:
    """Run TensorFlow under the plan and compare its thread pools with it.

    Status 0 when all is as planned, 1 when something differs, 3 without TensorFlow; a script's own status, unless that
    is 0 and its pools differ.
    """
    from tflaunch.render_verification import print_verification
    from tflaunch.verify import verify_fresh, verify_script

    if timeout is not None and not timeout > 0:
        raise UsageError(f"--timeout {timeout:g} cannot be used", "give a number of seconds above zero")
    files = Files()
    decision = decide(files, options, os.environ)
    if not options.quiet:
        say_problems((*files.problems(), *decision.problems))
    command = Command("script", script[0], script[1:]) if script else None
    if options.dry_run:
        from tflaunch.render import dry_run

        print(dry_run(decision, command.argv() if command else [sys.executable]))
        return 0
    if decision.binding is not None and decision.binding.cpus:
        from tflaunch.binding import bind

        failure = bind(decision.binding.cpus)  # what is started here inherits it
        if failure is not None:
            raise TflaunchError(f"cannot bind: {failure}", "verify without --bind cores")
    if command:
        verification, status = verify_script(decision, command, os.environ, timeout)
    else:
        verification, status = verify_fresh(decision, os.environ)
    if as_json:
        import json

        # A line of its own: behind what a script printed, the last line is the document.
        print("\n" + json.dumps(verification) if script else json.dumps(verification, indent=2))
    elif not (script and options.quiet):
        print_verification(verification, to_standard_error=bool(script))
    return status
