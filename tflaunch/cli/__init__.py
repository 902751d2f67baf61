"""The command line: typer splits the arguments, prints the help and completes; each command is one thin file."""

from __future__ import annotations

import importlib
import sys

import typer

import tflaunch
from tflaunch.cli.with_options import with_options
from tflaunch.errors import UsageError

# From the script's name on every argument is the script's, so parsing stops at the first one that is no option.
COMMANDS = {
    "run": {"allow_interspersed_args": False},
    "explain": {},
    "env": {},
    "verify": {"allow_interspersed_args": False},
}


def make_app(names: list[str]) -> typer.Typer:
    """The program with these commands. typer examines each one's signature, so a start has only that which it needs."""
    app = typer.Typer(
        name="tflaunch",
        help="Start TensorFlow programs with every thread pool sized to the CPU they may really use.",
        pretty_exceptions_enable=False,
    )
    app.callback()(_options_of_all)
    for name in names:
        command = getattr(importlib.import_module(f"tflaunch.cli.{name}"), name)
        app.command(context_settings=COMMANDS[name])(with_options(command))
    return app


def main(arguments: list[str]) -> int:
    """Run a command; UsageError for arguments that cannot be understood. No arguments at all: the help, status 2."""
    asked = [name for name in arguments[:1] if name in COMMANDS]
    app = make_app(asked or list(COMMANDS))
    try:
        status = app(arguments or ["--help"], standalone_mode=False, prog_name="tflaunch") or 0
    except typer.TyperException as error:
        command = f"tflaunch {asked[0]}" if asked else "tflaunch"
        raise UsageError(error.format_message().rstrip("."), f"{command} --help lists what there is") from None
    return status if arguments else UsageError.exit_status


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"tflaunch {tflaunch.__version__} (Python {sys.version.split()[0]})")
        raise typer.Exit


def _options_of_all(
    version: bool = typer.Option(False, "--version", callback=_print_version, is_eager=True, help="Print the version."),
) -> None:
    pass
