"""What several tests use: things that are made once, commands that leave nothing behind, lists of CPUs."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any


def shared_directory(tmp_path_factory: Any) -> Path:
    """A directory that all processes of this run have, removed by pytest some runs later."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


def once(directory: Path, name: str, make: Callable[[Path], None]) -> Path:
    """The directory `name` in it, filled by the first process that needs it, while others wait.

    A failure is every later caller's too: what failed once may take minutes to fail again.
    """
    result = directory / name
    with (directory / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not result.exists():
            result.mkdir()
            try:
                make(result)
            except BaseException as error:
                (result / "failure").write_text(str(error))
                raise
    if (result / "failure").exists():
        raise RuntimeError((result / "failure").read_text())
    return result


# How variables begin that change what tflaunch, an interpreter or a job does. A developer's shell may have some.
FOREIGN = (
    "COV", "TFLAUNCH_", "TF_", "OMP_", "KMP_", "GOMP_", "OPENBLAS_", "MKL_", "BLIS_", "VECLIB_", "NUMEXPR_", "NUMBA_",
    "LOKY_", "PYTHON_CPU_COUNT", "PYTHONWARNINGS", "NO_COLOR", "LD_PRELOAD", "SLURM_", "OMPI_", "PMIX_",
)  # fmt: skip


# How a Python script waits for signals. Python runs a handler between two of these; a single long wait may begin just
# after the signal came, and does not see it.
WAIT = "while True: time.sleep(0.05)"


def plain_environ() -> dict[str, str]:
    """The environment of the tests without them."""
    return {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}


def run(command: Sequence[str | Path], seconds: float | None, **variables: str) -> str:
    """Run a command to its end; it and all that it started are ended if it takes longer. Returns both its outputs.

    Fails with them if the command does.
    """
    with subprocess.Popen(
        command,
        env=plain_environ() | variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            said, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGTERM)
            said = f"{process.communicate()[0]}\nended after {seconds} s"
        except BaseException:
            os.killpg(process.pid, signal.SIGTERM)
            raise
    assert process.returncode == 0, f"status {process.returncode}: {said}"
    return said


def cpus_of(text: str) -> set[int]:
    """The CPUs of a list such as 0-3,8, which is how the kernel and others write them."""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found
