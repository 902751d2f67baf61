"""The installed program as a user starts it: a process of its own, seen from outside only."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from missing import missing
from shared import plain_environ

# No test waits this long unless something hangs.
SECONDS = 60

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(autouse=True, scope="session")
def _signals_are_not_ignored() -> None:
    """nohup, and a shell that starts them in its background, ignore these in the tests, and children inherit that."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


@pytest.fixture
def environment() -> dict[str, str]:
    """The environment of the tests without variables that tflaunch reads or sets."""
    return plain_environ()


@pytest.fixture(scope="session")
def program() -> str:
    """The installed program, beside the interpreter that runs the tests."""
    path = Path(sys.executable).parent / "tflaunch"
    assert path.is_file(), f"install the project first: there is no {path}"
    return str(path)


@pytest.fixture
def tflaunch(program: str, environment: dict[str, str], tmp_path: Path) -> Run:
    """Run tflaunch to its end: tflaunch("run", "script.py", variables={"A": "b"}); output as text."""

    def run(
        *arguments: str | bytes,
        variables: dict[str, str] | None = None,
        prefix: tuple[str, ...] = (),
        **keywords: object,
    ) -> subprocess.CompletedProcess[str]:
        settings: dict[str, object] = {
            "stdin": subprocess.DEVNULL if "input" not in keywords else None,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "cwd": tmp_path,
            "env": {**environment, **(variables or {})},
            "encoding": "utf-8",
            "errors": "surrogateescape",
            "timeout": SECONDS,
            **keywords,
        }
        if "input" in keywords:
            del settings["stdin"]
        return subprocess.run([*(prefix or (program,)), *arguments], check=False, **settings)

    return run


@pytest.fixture
def script(tmp_path: Path) -> Callable[..., str]:
    """Write a Python script of these lines into the working directory; returns its name."""

    def write(*lines: str, name: str = "script.py") -> str:
        (tmp_path / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
        return name

    return write


@pytest.fixture
def inside(tflaunch: Run) -> Run:
    """Run tflaunch in an interpreter that was prepared by a line of Python: a machine where something is amiss."""

    def run(preparation: str, *arguments: str, **keywords: object) -> subprocess.CompletedProcess[str]:
        code = (
            f"import os, sys\n{preparation}\nfrom tflaunch.main import main\nsys.argv[0] = 'tflaunch'\nsys.exit(main())"
        )
        return tflaunch(*arguments, prefix=(sys.executable, "-c", code), **keywords)

    return run


@pytest.fixture
def two_cpus() -> None:
    """What a part of the CPUs changes shows only where there are more."""
    if len(os.sched_getaffinity(0)) < 2:
        missing("needs two CPUs")
