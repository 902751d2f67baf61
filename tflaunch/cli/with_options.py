"""Gives a command the options of the table (tflaunch/options.py) in the form typer wants."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from typing import Annotated, Any

import typer

from tflaunch.options import OPTIONS, Option, parse_options


def with_options(command: Callable[..., int]) -> Callable[..., int]:
    """The command, whose first parameter becomes the parsed Options, with a flag for each option of the table.

    typer learns a command's options from its signature, so the table is written into that.
    """

    @functools.wraps(command)
    def wrapper(**values: Any) -> int:  # noqa: ANN401  # typer passes what the signature says
        given = {option.name: values.pop(option.name) for option in OPTIONS}
        said = {name: "1" if value is True else value for name, value in given.items() if value not in (None, False)}
        return command(parse_options(said, os.environ), **values)

    _, *own = inspect.signature(command, eval_str=True).parameters.values()
    parameters = [*own, *(_parameter(option) for option in OPTIONS)]
    wrapper.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # read by inspect.signature
    wrapper.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return wrapper


def _parameter(option: Option) -> inspect.Parameter:
    names = [option.flag, *([option.short] if option.short else [])]
    info = typer.Option(*names, metavar=option.metavar, help=f"{option.help} [{option.variable}]")
    annotation, default = (Annotated[bool, info], False) if option.is_switch else (Annotated[str | None, info], None)
    return inspect.Parameter(option.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
