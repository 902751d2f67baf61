"""`tflaunch env`: the variables, for a shell, a file, Docker or Kubernetes."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from tflaunch.decision import decide
from tflaunch.errors import UsageError
from tflaunch.files import Files
from tflaunch.messages import say_problems
from tflaunch.options import Options


def env(
    options: Options,
    form: Annotated[
        str, typer.Option("--format", metavar="FORM", help="sh (the default), dotenv, json, docker or kubernetes.")
    ] = "sh",
) -> int:
    """Print the environment of the plan: eval "$(tflaunch env)"."""
    from tflaunch.formats import FORMATS

    if form not in FORMATS:
        raise UsageError(f"--format {form} cannot be used", "give one of " + ", ".join(FORMATS))
    options = options._replace(bind="none")  # a variable binds nothing
    if options.view == "auto":  # a shell, and all that it starts, is given a preloaded library only when asked
        options = options._replace(view="off")
    files = Files()
    decision = decide(files, options, os.environ)
    if not options.quiet:
        say_problems((*files.problems(), *decision.problems))
    print(FORMATS[form](decision.shown if options.view == "on" else decision.sizes), end="")
    return 0
