"""Lines for people on standard error, which is all that tflaunch writes while a script has standard output."""

from __future__ import annotations

import os
import sys

from tflaunch.text import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from tflaunch.files import Problem


def say(line: str) -> None:
    """A line on standard error; a closed or full one must not stop the program."""
    _write(f"tflaunch: {printable(line)}")


def say_problems(problems: Iterable[Problem]) -> None:
    """A warning for each."""
    for problem in problems:
        say(f"warning: {problem.message}")


def say_error(what: str, hint: str) -> None:
    """What is wrong, and what to do."""
    is_coloured = sys.stderr is not None and sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    red, plain = ("\033[31m", "\033[0m") if is_coloured else ("", "")
    _write(f"tflaunch: {red}error:{plain} {printable(what)}\nhint: {printable(hint)}")


def _write(text: str) -> None:
    if sys.stderr is None:
        return
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        pass
