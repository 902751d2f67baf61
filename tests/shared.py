"""What several tests want and is made once, also where pytest-xdist runs them in several processes."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
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
