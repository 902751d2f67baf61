"""`tflaunch run`: start a program in the place of tflaunch."""

from __future__ import annotations

from typing import Annotated

import typer

from tflaunch.errors import UsageError
from tflaunch.launch import Command
from tflaunch.launch import run as launch
from tflaunch.options import Options


def run(
    options: Options,
    command: Annotated[
        list[str], typer.Argument(metavar="SCRIPT [ARGS]...", help="The script, and what follows is the script's own.")
    ],
    module: Annotated[bool, typer.Option("-m", help="SCRIPT is a module, as for python -m.")] = False,
    no_python: Annotated[bool, typer.Option("--no-python", help="SCRIPT is any other program.")] = False,
) -> int:
    """Start SCRIPT with its thread pools sized to the CPUs it may use.

    The script takes the place of tflaunch: same process, same arguments, streams, signals and exit status.
    """
    if module and no_python:
        raise UsageError("-m and --no-python exclude each other", "give one of them, or neither for a script")
    kind = "module" if module else "program" if no_python else "script"
    return launch(Command(kind, command[0], command[1:]), options)
