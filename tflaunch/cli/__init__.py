"""The command line: typer splits the arguments, prints the help and completes; each command is one thin file."""

from __future__ import annotations

import sys

import typer

import tflaunch
from tflaunch.cli.env import env
from tflaunch.cli.explain import explain
from tflaunch.cli.run import run
from tflaunch.cli.with_options import with_options
from tflaunch.errors import UsageError

app = typer.Typer(
    name="tflaunch",
    help="Start TensorFlow programs with every thread pool sized to the CPU they may really use.",
    pretty_exceptions_enable=False,
)

# From the script's name on every argument is the script's, so parsing stops at the first one that is no option.
app.command(context_settings={"allow_interspersed_args": False})(with_options(run))
app.command()(with_options(explain))
app.command()(with_options(env))


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"tflaunch {tflaunch.__version__} (Python {sys.version.split()[0]})")
        raise typer.Exit


@app.callback()
def _options_of_all(
    version: bool = typer.Option(False, "--version", callback=_print_version, is_eager=True, help="Print the version."),
) -> None:
    pass


def main(arguments: list[str]) -> int:
    """Run a command; UsageError for arguments that cannot be understood. No arguments at all: the help, status 2."""
    try:
        status = app(arguments or ["--help"], standalone_mode=False, prog_name="tflaunch") or 0
    except typer.TyperException as error:
        command = f" {arguments[0]}" if arguments and arguments[0] in ("run", "explain", "env") else ""
        raise UsageError(error.format_message().rstrip("."), f"tflaunch{command} --help lists what there is") from None
    return status if arguments else UsageError.exit_status
